"""The MLP of steps_mlp.py and steps_jax.py."""

WIDTH, INNER, LAYERS = 1024, 4096, 2
TOKENS = 512  # of a rank, or of all where they share the model
HOW = ("ddp", "fsdp", "fsdp_bf16", "tp", "sp")
