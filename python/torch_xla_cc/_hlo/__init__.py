"""HLO programs: read, and asked about their collectives."""
