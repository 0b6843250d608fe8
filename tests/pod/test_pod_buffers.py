"""Send buffers that gloo has set (pod_device/buffers.py)."""

import socket

import pods
import pytest
import several_ranks

from torch_xla_cc._pod.pod_device import buffers, meetings


def _size(connection):
    return connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


@pytest.mark.parametrize("most", [4 << 20, 212_992])  # what the kernel allows elsewhere
def test_only_what_was_set_is_widened(monkeypatch, most):
    monkeypatch.setattr(buffers, "_BYTES", most)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as left,
        socket.create_connection(server.getsockname()) as shrunk,
    ):
        as_it_was = _size(left)
        shrunk.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        small = _size(shrunk)
        buffers.widen()
        assert _size(left) == as_it_was
        assert _size(shrunk) > 8 * small
        assert shrunk.getsockopt(socket.SOL_SOCKET, buffers._SO_BUF_LOCK) == 0
        assert shrunk.getpeername() and left.getpeername(), "they are still open"


def test_while_a_new_program_waits(monkeypatch):
    """What it waits for may be what comes after its reduce_scatter."""
    pytest.importorskip("jaxlib", reason="the pod needs it")
    from torch_xla_cc._pod.pod_device.world import World

    class Attendance:
        def begin(self, key, calls, asks):
            pass

        def stalled(self):
            pass

    widened = []
    monkeypatch.setattr(buffers, "widen", lambda: widened.append(len(widened)))
    world = World({"rank": "0", "world": "1"}, print, str)
    world._attendance = Attendance()
    assert not world.by_names  # but by gloo
    found = []
    for op in ("all-reduce", "reduce-scatter", "reduce-scatter"):
        calls = meetings.one((0, 1), op)
        world.meets(calls, calls.key(), ())
        before = len(widened)
        world.stalled()
        found.append((before, len(widened) - before))
    assert found == [(0, 0), (0, 1), (2, 0)]  # before it begins, and while it waits


@pytest.mark.parametrize("groups", [[[0, 1, 2]], [[0, 1], [2, 3]]])
def test_after_a_little_reduce_scatter(groups):
    """Small after it, wide at the next collective; again after a larger one, not after the same."""
    by_gloo = {"TORCH_XLA_CC_POD_COLLECTIVES": "gloo"}
    with pods.ranks(sum(map(len, groups)), **by_gloo) as ranks:
        found = ranks.run(pods.joined, several_ranks.scatters_little, groups)
    if any(isinstance(sizes, str) for sizes in found):
        pytest.skip(f"the sockets of another process cannot be looked at here: {found[0]}")
    for little, wide, larger, wide_again, same, _ in found:
        assert little < 8192 and wide > 8 * little
        assert larger < 1 << 20 and wide_again > 1.5 * larger
        assert same >= wide_again
