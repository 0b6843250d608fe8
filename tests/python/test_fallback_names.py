"""What torch_xla runs on the CPU is in its map of counters before ranks come there."""

import os
import subprocess
import sys
import textwrap
import uuid

import torch
import worlds

from torch_xla_cc import _C

COUNTED = textwrap.dedent("""
    import torch_xla.debug.metrics as metrics
    from torch_xla_cc import _C

    names = ("aten::_local_scalar_dense", "aten::_unique", "aten::lgamma")
    assert _C.name_fallbacks() > 1000
    assert [metrics.counter_value(name) for name in names] == [1] * 3
    assert _C.name_fallbacks() == 0
    assert [metrics.counter_value(name) for name in names] == [1] * 3
""")

LAUNCHED = textwrap.dedent("""
    import torch
    import torch_xla
    import torch_xla.debug.metrics as metrics
    import torch_xla_cc
    from torch_xla_cc import _C

    from torch_xla_cc._runtime.private import XLAC

    def reads(rank):
        return torch.ones((), device=torch_xla.device()).item(), _C.name_fallbacks()

    if __name__ == "__main__":
        XLAC._xla_increment_counter("of a user", 7)
        assert torch_xla_cc.launch(reads, (), 3) == [(1.0, 0)] * 3
        counted = [name for name in metrics.counter_names() if name.startswith("aten::")]
        assert counted == ["aten::_local_scalar_dense"], counted
        assert metrics.counter_value(*counted) == 3
        assert metrics.counter_value("of a user") == 7
""")


def run(program, tmp_path, **variables):
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_each_operator_is_named_once(tmp_path):
    said = run(COUNTED, tmp_path, TORCH_SHOW_CPP_STACKTRACES="1")
    assert said.count("C++ stack trace") < 10  # of none of the operators


def test_before_ranks_run_and_without_a_count(tmp_path):
    """.item() of three ranks at once, the first of the process, ended it in 3 of 67 runs."""
    run(LAUNCHED, tmp_path)


USED = textwrap.dedent("""
    import torch
    import torch_xla
    import torch_xla.debug.metrics as metrics
    import torch_xla_cc

    if __name__ == "__main__":
        (torch.ones(2, device=torch_xla.device()) + 1).tolist()
        before = {name: metrics.counter_value(name) for name in metrics.counter_names()}
        torch_xla_cc.launch(print, (), 1)
        assert not [name for name in metrics.executed_fallback_ops() if name not in before]
""")


def test_a_launch_after_use_of_a_device(tmp_path):
    run(USED, tmp_path)


def late(rank):
    _C.name_fallbacks()  # one rank has none of them named
    with torch.library._scoped_library(f"txcc_{uuid.uuid4().hex}", "DEF") as library:
        library.define("nothing(Tensor x) -> Tensor")
        return _C.name_fallbacks(), _C.name_fallbacks()


def test_libraries_that_came_later():
    assert worlds.run(1, late) == [(1, 0)]
