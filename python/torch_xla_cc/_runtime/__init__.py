"""Beneath all else: versions, private names of torch and torch_xla, what stands in messages."""
