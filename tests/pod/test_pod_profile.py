"""The trace of a rank has what its device process ran."""

import pods
import several_ranks

from torch_xla_cc._profile import report, xplane


def test_who_is_waited_for(tmp_path):
    pods.run(2, several_ranks.is_traced, str(tmp_path))
    found = report.profile(str(tmp_path), xplane.spaces(tmp_path))
    assert found.world == 2 and found.alone == 0
    kinds = {row.predicted.after: row for row in found.rows}
    assert kinds.keys() == {"all-gather", "all-reduce"}
    assert kinds["all-gather"].runs == 2
    assert found.ranks[1].kept_waiting_ns > 150_000_000  # it sleeps twice for 0.1 s
    assert all(row.bytes_per_s > 0 for row in found.rows)
    first = xplane.spaces(tmp_path)[0]
    assert {"/host:CPU", "/device:CUSTOM:POD:0"} <= {plane.name for plane in first.planes}
