"""What each device's compiler takes: measured, asked for, overridden.

    supports("all_to_all", "tpu:v5e")        # native there?
    print(explain("all_reduce", "cpu", torch.int32, reduce_type="xor"))
    register("all_to_all", "neuron", False)  # this application knows better

`python -m torch_xla_cc.capabilities probe` measures.
"""

from torch_xla_cc.capabilities.api import (
    Explanation,
    Registration,
    explain,
    register,
    supports,
)

__all__ = ["Explanation", "Registration", "explain", "register", "supports"]
