"""Device processes that do not come, come twice, or are of another pod: told within the timeout."""

import contextlib
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pods
import pytest

from torch_xla_cc._pod.pod_device import attendance

TIMEOUT_S = 4
SLACK_S = 20.0  # a process of torch and torch_xla starts meanwhile, on a busy machine


def start(rank, size, address, token):
    """The error that a rank gets when it starts its pod by itself, and how long that took."""
    import txcc_pod

    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    txcc_pod.register()
    import torch_xla

    variables = {
        **{"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank)},
        **{"LOCAL_WORLD_SIZE": str(size), "TORCH_XLA_CC_POD_ADDRESS": address},
        **{"TORCH_XLA_CC_POD_TOKEN": token, "TORCH_XLA_CC_TIMEOUT_S": str(TIMEOUT_S)},
    }
    began = time.monotonic()
    with mock.patch.dict(os.environ, variables):
        try:
            torch_xla.device()
            return "", time.monotonic() - began
        except (RuntimeError, ValueError) as error:
            return str(error), time.monotonic() - began


def told(*ranks):
    """What each is told, of (rank, size, token)."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        with contextlib.ExitStack() as ends:
            started = [ends.enter_context(pods.ranks(1)) for _ in ranks]
            for one in started:
                one.run(abs)  # it has started
            with ThreadPoolExecutor() as pool:
                calls = [
                    pool.submit(one.run, started_by_itself, (rank, size, address, token))
                    for one, (rank, size, token) in zip(started, ranks, strict=True)
                ]
                found = [call.result()[0] for call in calls]
    for message, took in found:
        assert took < TIMEOUT_S + SLACK_S, message
    return [message for message, _ in found]


def started_by_itself(_, arguments):
    return start(*arguments)


def test_a_rank_that_does_not_come_is_named():
    for message in told((0, 3, "ours"), (1, 3, "ours")):
        assert "rank 2 of the pod's 3 did not come within 4 s" in message


def test_rank_0_does_not_come():
    (message,) = told((1, 2, "ours"))
    assert "rank 0 of the pod could not be reached at 127.0.0.1:" in message
    assert "within 4 s" in message


def test_two_of_one_number():
    for message in told((0, 3, "ours"), (1, 3, "ours"), (1, 3, "ours")):
        assert "two processes say that they are rank 1 of the pod" in message


def test_sizes_that_differ():
    for message in told((0, 2, "ours"), (1, 3, "ours")):
        assert "rank 1 says that the pod has 3 ranks, and rank 0 that it has 2" in message


def test_another_token_is_of_another_pod():
    host, guest = told((0, 2, "ours"), (1, 2, "theirs"))
    assert "rank 1 of the pod's 2 did not come within 4 s" in host
    assert "has another token of the pod" in guest


@pytest.fixture
def address():
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()


def test_one_dies_while_they_meet(address):
    """Rank 0 and those that have come are told, though rank 2 would still be waited for."""
    lost = []
    host = attendance.Host(address, 3, "ours", lost.append, str, print, print)
    guest = socket.create_connection(address)
    guest.sendall(b"ours 1 3\n")
    with ThreadPoolExecutor() as pool:
        meets = pool.submit(host.meet, "service", 60.0)
        time.sleep(0.2)
        guest.close()
        with pytest.raises(Exception, match="the device process of rank 1 has ended"):
            meets.result(timeout=10)
    assert lost == ["the device process of rank 1 has ended"]


def test_rank_0_ends_after_the_processes_of_those_that_left(address):
    """jaxlib's client would end them with an error as the service goes."""
    lost = []
    host = attendance.Host(address, 2, "ours", lost.append, str, print, print)
    guest = attendance.Guest(address, 1, 2, "ours", 10.0, lost.append, str, print, print)
    with ThreadPoolExecutor() as pool:
        meets = pool.submit(guest.meet, 10.0)
        host.meet(lambda reached: "127.0.0.1:1", 10.0)
        meets.result(timeout=10)
        guest.leave()
        host.leave()
        ends = pool.submit(host.end)
        time.sleep(0.2)
        assert not ends.done()
        guest._connection.shutdown(socket.SHUT_RDWR)  # as the kernel does with the process
        ends.result(timeout=5)
    assert not lost
