"""What ranks that are processes tell each other over a store: ranks are threads here, each with a
backend of its own, whose barrier is the comparison alone. Nothing moves data.
"""

import itertools
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import effort
import pytest
import torch.distributed as dist
from torch._C._distributed_c10d import FakeProcessGroup, HashStore, Store

import torch_xla_cc
from torch_xla_cc import _C

NUMBERS = itertools.count()


class Counting(Store):
    """How many keys are named in all requests to a store."""

    def __init__(self, store):
        super().__init__()
        self.store = store
        self.keys = 0

    def clone(self):
        return self

    def has_extended_api(self):
        return True

    def set_timeout(self, _limit):
        pass


def _counted(name):
    def method(self, *args):
        self.keys += len(args[0]) if isinstance(args[0], list) else 1  # under the interpreter lock
        return getattr(self.store, name)(*args)

    return method


for _name in ("set", "get", "add", "check", "wait", "delete_key", "multi_set", "multi_get"):
    setattr(Counting, _name, _counted(_name))


def backends(size, store_of, timeout_s=60.0):
    """Made at once, as processes are: one a rank."""
    return [
        _C.process_backend(
            FakeProcessGroup(rank, size),
            store_of(),
            1,  # fingerprint
            *[False] * 5,  # through the host alone
            _C.RankGroup("g", list(range(size)), list(range(size)), size, rank),
            int(timeout_s * 1000),
        )
        for rank in range(size)
    ]


def together(ranks, call):
    """`call(rank, backend)` on a thread each: the types and texts of what they raise."""
    outcomes = [None] * len(ranks)

    def work(rank, backend):
        try:
            call(rank, backend)
        except Exception as error:
            outcomes[rank] = type(error), str(error)

    threads = [threading.Thread(target=work, args=each) for each in enumerate(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def barriers(count):
    def call(_rank, backend):
        for _ in range(count):
            backend.barrier().wait()

    return call


@pytest.mark.parametrize("size", [4, 24])
def test_a_call_names_a_few_keys_a_rank(size):
    store = Counting(HashStore())
    ranks = backends(size, lambda: store)
    assert together(ranks, barriers(1)) == [None] * size
    before = store.keys
    assert together(ranks, barriers(10)) == [None] * size
    # Its last call, its count and its wait; that all are there, and what is deleted now and then.
    assert store.keys - before <= 10 * (3 * size + 1) + 4 * 10


def stores(tmp_path):
    tcp = dist.TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)
    shared = HashStore()
    return {
        "hash": lambda: shared,
        "tcp": lambda: dist.TCPStore("127.0.0.1", tcp.port, None, is_master=False),
        "file": lambda: dist.FileStore(str(tmp_path / "store"), 3),
        "prefix": lambda: dist.PrefixStore("a", dist.PrefixStore("b", shared)),
    }


@pytest.mark.parametrize("kind", ["hash", "tcp", "file", "prefix"])
def test_keys_are_deleted(kind, tmp_path):
    store_of = stores(tmp_path)[kind]
    ranks = backends(3, store_of)
    assert together(ranks, barriers(100)) == [None] * 3
    before = store_of().num_keys()
    assert together(ranks, barriers(200)) == [None] * 3
    # What is left of at most 32 calls, and of those since each rank's turn.
    assert abs(store_of().num_keys() - before) < 2 * 64


@pytest.mark.parametrize("kind", ["hash", "tcp", "file"])
def test_the_last_comes_as_others_give_up(kind, tmp_path):
    """Then all have come or none has: no rank may begin what another has given up."""
    rng = random.Random(effort.SEED)
    for _ in range(effort.TIMES):
        lates = [limit_s + rng.uniform(-0.01, 0.01) for limit_s in [0.8] * 8]
        with ThreadPoolExecutor(len(lates)) as pool:
            attempts = [pool.submit(_comes_late, stores(tmp_path)[kind], late) for late in lates]
        for late, attempt in zip(lates, attempts, strict=True):
            outcomes = attempt.result()
            came = [outcome is None for outcome in outcomes]
            assert all(came) or not any(came), (late, outcomes)
            for error, _ in filter(None, outcomes):
                assert error is torch_xla_cc.CollectiveTimeoutError, outcomes


def _comes_late(store_of, late_s):
    def call(rank, backend):
        if rank == 2:
            time.sleep(late_s)
        backend.barrier().wait()

    name = str(next(NUMBERS))
    return together(backends(3, lambda: dist.PrefixStore(name, store_of()), 0.8), call)


def test_a_rank_that_comes_when_others_have_given_up():
    store = HashStore()
    ranks = backends(3, lambda: store, 0.7)
    began = time.monotonic()
    outcomes = together(
        ranks, lambda rank, backend: (time.sleep(2.5 * (rank == 1)), backend.barrier().wait())
    )
    assert time.monotonic() - began < 6
    for kind, text in outcomes:
        assert kind is torch_xla_cc.CollectiveTimeoutError
        assert "rank 1 has not come, and made no call of this group" in text
        assert "rank 0 has not come" not in text and "rank 2 has not come" not in text
