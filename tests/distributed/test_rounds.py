"""Rounds, in which ranks hear what each would run. The ranks are threads here: of many processes
there is nothing else to see."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch.distributed import TCPStore

from torch_xla_cc._processes import rounds
from torch_xla_cc._processes.rounds import Poke, RanksGone, Rounds
from torch_xla_cc._processes.said import Kind, Said, is_stuck

LIMIT = timedelta(seconds=30)
SIZES = (2, 17, 18)


@pytest.fixture
def store():
    return TCPStore("localhost", 0, is_master=True, wait_for_workers=False)


def of_ranks(store, size, function, limit=LIMIT):
    """`function(rounds)` for each rank of a world."""

    def started(rank):
        return function(Rounds(store.clone(), rank, size, limit))

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(started, range(size)))


@pytest.mark.parametrize("size", SIZES)
def test_all_hear_what_each_says(store, size):
    def says(own):
        return [own.meet([100 * number + own.rank, -1 << 62], None) for number in range(3)]

    expected = [[[100 * number + rank, -1 << 62] for rank in range(size)] for number in range(3)]
    assert of_ranks(store, size, says) == [expected] * size


def test_rows_and_columns():
    sizes = {2: 2, 16: 16, 17: 17, 18: 6, 24: 6, 25: 5, 256: 16, 1000: 40}
    assert {size: rounds._columns(size) for size in sizes} == sizes


@pytest.mark.parametrize(("size", "late"), [(4, 0), (18, 3)])
def test_a_late_rank_is_poked_once(store, size, late):
    """By all that wait, in whichever row they are."""

    def comes(own):
        if own.rank != late:
            own.meet([own.rank], Poke(own.number, 5, reads=False))
            return None
        poke = own.listen()
        time.sleep(0.2)  # until all others wait
        more = own.listen(wait=False)
        own.meet([own.rank], None)
        return poke, more

    found = of_ranks(store, size, comes)
    assert found[late] == (Poke(0, 5, reads=False), None)


def test_those_that_wait_otherwise_poke_too(store):
    def comes(own):
        if own.rank:
            own.meet([own.rank], Poke(own.number, own.rank, reads=own.rank == 2))
            return None
        pokes = {own.listen(), own.listen()}
        own.meet([0], None)
        return pokes

    assert of_ranks(store, 3, comes)[0] == {Poke(0, 1, reads=False), Poke(0, 2, reads=True)}


def test_who_hears_late_hears_of_the_newest(store, monkeypatch):
    """What pokes leave in the store does not grow."""
    monkeypatch.setattr(rounds, "_KEPT", 8)

    def comes(own):
        for number in range(40):
            if own.rank == 0:
                own._poke_all(Poke(number, 0, reads=False))
            own.meet([number], None)
        return own

    _, other = of_ranks(store, 2, comes)
    assert other.listen() == Poke(39, 0, reads=False)
    assert other.listen(wait=False) is None
    assert not store.check(["rounds/poke/30", "rounds/poked/30 0 0"])
    assert store.check(["rounds/poke/40", "rounds/poked/39 0 0"])


@pytest.mark.parametrize("size", [3, 18])
def test_who_has_left_is_named(store, size):
    gone = size - 2

    def comes(own):
        own.meet([own.rank], None)
        if own.rank == gone:
            own.leave()
            return ""
        with pytest.raises(RanksGone) as told:
            own.meet([own.rank], None)
        own.leave()
        return str(told.value)

    said = of_ranks(store, size, comes)
    assert sum(f"ranks [{gone}] have ended" in one for one in said) >= 1, said
    assert all("ended, or not come" in one for one in said if one)


def test_who_listens_is_told_to_stop(store):
    def listens(own):
        stops = threading.Timer(0.3, own.stop_listening)
        stops.start()
        began = time.monotonic()
        while (poke := own.listen()) is not None:
            assert poke.round == -1  # the other's, for which nobody does anything
        return time.monotonic() - began

    assert max(of_ranks(store, 2, listens)) < 5


@pytest.mark.timeout(60)
def test_the_script_may_wait_in_the_worlds_store(store):
    """Which holds its connection; and a late peer has the rank write to the store meanwhile."""

    def comes(rank):
        of_world = store.clone()
        own = Rounds(of_world, rank, 2, LIMIT)
        if rank:
            time.sleep(0.5)
            own.meet([rank], None)
            own.meet([rank], None)  # to which the other comes, while its script still waits
            store.set("go on", "")
            return
        waits = threading.Thread(target=of_world.wait, args=(["go on"],))
        waits.start()
        time.sleep(0.1)
        own.meet([rank], Poke(own.number, 0, reads=True))
        own.meet([rank], None)
        waits.join()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(comes, range(2)))


@pytest.mark.parametrize(("limit_s", "stuck"), [(8, True), (60, False)])
def test_an_idle_rank_is_waited_for_no_longer_than_half_the_limit(limit_s, stuck):
    waits = Said(Kind.READS, 1, 0, waited=5000)
    assert is_stuck([waits, Said(Kind.IDLE, 0, 0)], [1, 0], [False, False], 1000 * limit_s) is stuck
