"""Collectives taken apart in steps around a ring: internal."""
