"""A small GPT-2 of transformers, and sequences that count up, from random numbers."""

from __future__ import annotations

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def model_and_tokens() -> tuple[GPT2LMHeadModel, torch.Tensor]:
    config = GPT2Config(
        n_layer=1, n_head=2, n_embd=32, vocab_size=64, n_positions=16,
        bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    return model, (torch.randint(64, (64, 1)) + torch.arange(16)) % 64
