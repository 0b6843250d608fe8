"""What the collectives of xla_model are made of."""
