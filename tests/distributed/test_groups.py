"""Worlds and groups of all kinds, on threads and on processes."""

import groups
import processes
import pytest
import worlds

RUN = {"threads": worlds.run, "processes": processes.run}
BACKENDS = ["xla_cc", "cpu:gloo,xla:xla_cc"]


def fresh(where, world, function, *args):
    """On processes that have made no world yet: of a second one by env://, the gloo of torch finds
    the addresses of the first in torchrun's store.
    """
    if where == "threads":
        return worlds.run(world, function, *args)
    with processes.Processes(world) as ranks:
        return ranks.run(function, *args)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("where", RUN)
def test_env(where, backend):
    assert fresh(where, 2, groups.by_url, 2, where, backend, "env://") == [[2.0, 2.0]] * 2


@pytest.mark.parametrize("where", RUN)
def test_env_again(where):
    two = [2.0, 2.0]
    made = [two, [1.0], two, two, [0.0] * 2, two, two, two, [1.0] * 3]
    assert fresh(where, 2, groups.env_again, 2) == [made] * 2


def test_a_group_is_there_when_all_are_connected(tmp_path):
    """Who ends it at once would end connections that others still make."""
    with processes.Processes(3) as ranks:
        times = ranks.run(groups.slow_to_connect, 3, f"{tmp_path}/ranks")
    assert min(made for _, made in times) >= max(connected for connected, _ in times)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("where", RUN)
def test_file(where, backend, tmp_path):
    url = f"file://{tmp_path}/ranks"
    assert fresh(where, 2, groups.by_url, 2, where, backend, url) == [[2.0, 2.0]] * 2


def test_worlds_that_failed_leave_no_threads(tmp_path):
    with processes.Processes(2) as ranks:
        for found in ranks.run(groups.threads_of_failed, 2, str(tmp_path)):
            assert found[1:] == [found[0]] * 5


def test_late_with_a_file(tmp_path):
    with processes.Processes(2) as ranks:
        assert ranks.run(groups.late, 2, f"{tmp_path}/ranks") == [[2.0, 2.0]] * 2


@pytest.mark.parametrize("where", RUN)
def test_tcp(where):
    url = f"tcp://127.0.0.1:{worlds.free_port()}"
    assert fresh(where, 2, groups.by_url, 2, where, "xla_cc", url) == [[2.0, 2.0]] * 2


@pytest.mark.parametrize("where", RUN)
def test_a_given_store(where, tmp_path):
    path = f"{tmp_path}/store"
    assert fresh(where, 2, groups.by_store, 2, where, "xla_cc", path) == [[2.0, 2.0]] * 2


@pytest.mark.parametrize(
    ("where", "url"), [("threads", "env://"), ("threads", "xla://"), ("processes", "env://")]
)
def test_the_name_of_torch_xla(where, url):
    for name, of_all, of_two in fresh(where, 3, groups.installed, 3, url):
        assert name == "xla_cc"
        assert of_all == [3.0, 3.0] and of_two == [2.0, 2.0]


@pytest.mark.parametrize("where", RUN)
def test_groups_that_only_members_make(where):
    three = [[3.0, 3.0]] * 2
    assert RUN[where](4, groups.local_groups) == [three, None, three, three]


@pytest.mark.parametrize("where", RUN)
def test_new_subgroups(where):
    two = [2.0, 2.0]
    expected = [(two, [0, 1]), (two, [0, 1]), (two, [2, 3]), (two, [2, 3])]
    assert RUN[where](4, groups.subgroups) == expected


@pytest.mark.parametrize("where", RUN)
def test_split_group(where):
    pair = [[1, 3], [2.0, 2.0]]
    assert RUN[where](4, groups.split) == [
        None,
        [*pair, [1], [1.0, 1.0]],
        [[2], [1.0, 1.0]],
        [*pair, [3], [1.0, 1.0]],
    ]
    for messages in RUN[where](2, groups.wrong_splits):
        assert len(messages) == 5
        assert all("split_group: split_ranks = " in message for message in messages)


def test_groups_share_connections_to_the_store():
    with processes.Processes(2) as ranks:
        for before, after in ranks.run(groups.connections):
            assert before == after and 1 <= before <= 3


@pytest.mark.parametrize("where", RUN)
def test_monitored_barrier(where):
    messages = RUN[where](4, groups.monitored)
    for rank in (0, 2, 3):
        assert "rank 1 has not come" in messages[rank]
        assert "rank 1 has not come, and last called barrier()" in messages[rank]


def test_groups_along_the_axes_of_a_mesh_are_the_same_on_all_ranks():
    by_rank = RUN["threads"](8, groups.along_axes)
    pairs = "{{0,4},{1,5},{2,6},{3,7},{4,0},{5,1},{6,2},{7,3}}"
    assert by_rank == [["[4,2]<=[2,4]T(1,0)", "[2,4]<=[8]", pairs]] * 8


@pytest.mark.parametrize("where", RUN)
def test_device_mesh(where):
    assert RUN[where](4, groups.mesh) == [[2.0, 1.0], [4.0, 1.0], [2.0, 5.0], [4.0, 5.0]]


@pytest.mark.parametrize("where", RUN)
def test_every_barrier_waits_for_all(where):
    assert min(RUN[where](2, groups.barriers)[0]) > 0.2
