"""Variables of the environment that are not what they should be."""

from __future__ import annotations

import os

from torch_xla_cc._runtime.show import show

MOST_CPU_DEVICES = 128  # torch has no more devices of a kind
_KINDS = ("CPU", "TPU", "CUDA", "NEURON", "POD")  # as torch_xla compares PJRT_DEVICE with them

# What a variable may be: the first if it is not set.
CHOICES = {
    "TORCH_XLA_CC_CALLS": ("agree", "each", "graph"),
    "TORCH_XLA_CC_CHECK": ("fingerprint", "off", "full"),
    "TORCH_XLA_CC_POD_PROGRAMS": ("any", "same"),
}


def choice(name: str) -> str:
    """The one that a variable has."""
    choices = CHOICES[name]
    value = os.environ.get(name, choices[0])
    if value not in choices:
        raise ValueError(f"{name} = {show(value)}, but it must be one of {choices}")
    return value


def number(name: str, otherwise: int, *, who: str = "") -> int:
    """A number from 0 on that a variable has; `otherwise` if it is not set.

    Args:
      who: who asks, for the message: "launch".
    """
    text = os.environ.get(name, str(otherwise))
    if not text.strip().isdecimal():
        raise ValueError(
            f"{who and who + ': '}{name} = {show(text)}, but it must be a number, such as 4. Set "
            "it to one, or not at all"
        )
    return int(text)


def switch(name: str) -> bool:
    """Whether a variable is 1; not set, it is 0."""
    text = os.environ.get(name, "0")
    if text not in ("0", "1", ""):
        raise ValueError(f"{name} = {show(text)}, but it must be 0 or 1. Set it to one of them")
    return text == "1"


def require_kind(who: str) -> None:
    """Raise if PJRT_DEVICE has a name in other letters than torch_xla's, which finds none then."""
    kind = os.environ.get("PJRT_DEVICE", "")
    if kind not in _KINDS and kind.upper() in _KINDS:
        raise ValueError(
            f"{who}: PJRT_DEVICE = {show(kind)}, but it must be in capitals. Set "
            f"PJRT_DEVICE={kind.upper()}"
        )
