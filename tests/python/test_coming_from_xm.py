"""docs/coming_from_xm.md: its tables name what is there."""

import inspect
import re
from pathlib import Path

from torch_xla.core import xla_model as stock

from torch_xla_cc import functions, regions
from torch_xla_cc import xla_model as ours
from torch_xla_cc.adapters import _torch_xla as _install

PAGE = (Path(__file__).parents[2] / "docs/coming_from_xm.md").read_text()
ROWS = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", PAGE, re.M)


def test_each_function_has_a_row():
    public = inspect.getmembers(ours, inspect.isfunction)
    names = {name for name, f in public if f.__module__ == ours.__name__}
    assert names >= set(_install._NAMES)
    assert {name for name, *_ in ROWS} == names
    # `not there` is said of those that torch_xla has not.
    assert {name for name, was, _ in ROWS if was == "not there"} == {
        name for name in names if not hasattr(stock, name)
    }


def test_defaults_are_as_said():
    def required(function):
        parameters = inspect.signature(function).parameters.values()
        return {p.name for p in parameters if p.default is p.empty}

    assert required(stock.reduce_scatter) - required(ours.reduce_scatter) == {
        "scale",
        "scatter_dim",
        "shard_count",
    }
    assert required(stock.all_to_all) - required(ours.all_to_all) == {"split_count"}


def test_named_functions_are_there():
    for module, name in re.findall(r"`(functions|regions)\.(\w+)`", PAGE):
        assert callable(getattr({"functions": functions, "regions": regions}[module], name))
    for name in re.findall(r"`xm\.(\w+)`", PAGE):
        assert callable(getattr(stock, name))
