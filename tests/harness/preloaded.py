"""What the server of forks.py imports, once, before it forks."""

import gc
import importlib
import os

MODULES = ("torch", "torch_xla", "torch_xla.core.xla_model", "torch_xla_cc.distributed")

_before = dict(os.environ)
for _name in MODULES:
    importlib.import_module(_name)

# What these imports have set in the environment, and would set in each child.
SET_BY_IMPORTS = {
    name: value
    for name, value in os.environ.items()
    if _before.get(name) != value and name != "XLA_FLAGS"
}

# Objects that are never collected are not written to, and their memory stays shared.
gc.collect()
gc.freeze()
