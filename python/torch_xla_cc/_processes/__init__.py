"""Ranks that are processes and have to run the same programs."""
