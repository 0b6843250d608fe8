"""The trace of a rank has what its device process ran."""

import pods
import traced

from torch_xla_cc._profile import report, xplane


def test_who_is_waited_for(tmp_path):
    pods.run(2, traced.is_traced, str(tmp_path))
    found = report.profile(str(tmp_path), xplane.spaces(tmp_path))
    assert found.world == 2 and found.alone == 0
    kinds = {row.predicted.after: row for row in found.rows}
    assert kinds.keys() == {"all-gather", "all-reduce"}
    assert kinds["all-gather"].runs == 2
    assert found.ranks[1].kept_waiting_ns > 150_000_000  # it sleeps twice for 0.1 s
    assert all(row.bytes_per_s > 0 for row in found.rows)
    first = xplane.spaces(tmp_path)[0]
    assert {"/host:CPU", "/device:CUSTOM:POD:0"} <= {plane.name for plane in first.planes}


def test_a_trace_that_waits_for_the_device_holds_nothing_up(tmp_path):
    with pods.ranks(1) as ranks:
        [(speaking, asking)] = ranks.run(
            pods.joined, traced.speaks_while_a_trace_waits, str(tmp_path)
        )
    assert asking and not speaking


def test_a_device_that_is_not_traced_is_told(tmp_path):
    with pods.ranks(1, TF_CPP_MIN_LOG_LEVEL="2") as ranks:
        [said] = ranks.run(pods.joined, traced.is_traced_without_a_device, str(tmp_path))
    assert "the trace lacks what the pod's device ran: the pod's device process of rank 0" in said
    assert list(tmp_path.rglob("*.xplane.pb"))  # the rank's own part is there
