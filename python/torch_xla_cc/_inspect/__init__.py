"""What became of the collectives of a program."""
