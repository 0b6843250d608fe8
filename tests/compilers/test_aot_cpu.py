"""The process that compiles for XLA:CPU: kept, replaced when it has died, and limited in time."""

import os
import signal
import threading
import time

import pytest

from torch_xla_cc import _C, _aot, lowering_for
from torch_xla_cc._aot import cpu

F32 = 11


def module(rows, ranks=2):
    with lowering_for("cpu", ranks):
        return _C.lower_all_gather([(F32, [rows, 4])], 0, None)["bytes"]


def compiled(rows, ranks=2, timeout_s=60):
    return b"all-gather" in cpu.compile_on_cpu(module(rows, ranks), ranks, timeout_s)


def pid():
    return cpu._kept._process.pid


def test_it_is_kept_for_as_many_ranks(monkeypatch):
    assert compiled(8)
    first = pid()
    monkeypatch.setenv("OLDPWD", "/nowhere")  # which is nothing to a compiler
    assert compiled(16) and pid() == first
    assert compiled(8, ranks=4) and pid() != first


def test_it_is_not_kept_for_other_variables_of_xla(monkeypatch):
    assert compiled(8)
    first = pid()
    monkeypatch.setenv("XLA_SAVE_TENSORS_FMT", "hlo")
    assert compiled(8) and pid() != first


def test_one_that_has_died_is_replaced():
    assert compiled(8)
    first = pid()
    os.kill(first, signal.SIGKILL)
    cpu._kept._process.wait(10)
    assert compiled(8) and pid() != first


def test_one_that_does_not_even_read():
    assert compiled(8)
    os.kill(pid(), signal.SIGSTOP)
    large = module(8) + b"\x0a\x00" * (1 << 21)  # its name once more, and again: over 4 MB
    begin = time.monotonic()
    with pytest.raises(_aot.CompilerTimeout, match="more than 1 s"):
        cpu.compile_on_cpu(large, 2, 1)
    assert time.monotonic() - begin < 10
    assert compiled(8)


def test_after_a_fork():
    assert compiled(8)
    child = os.fork()
    if child == 0:
        os._exit(0 if cpu._kept is None and not cpu._lock.locked() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert compiled(8)


def test_in_threads():
    found = []
    threads = [threading.Thread(target=lambda i=i: found.append(compiled(8 * i))) for i in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True, True]
