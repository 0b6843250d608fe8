"""PREMUL_SUM of narrow floats, in the graph and through the host, within what the spec says."""

import premultiplied
import processes
import pytest
import worlds

RUN = {"threads": worlds.run, "processes": processes.run}


@pytest.mark.parametrize("where", RUN)
@pytest.mark.parametrize("size", [2, 3])
def test_sums_of_narrow_floats(where, size):
    for found in RUN[where](size, premultiplied.sums):
        assert [case for case in found if case[1] > 1] == []
        if where == "processes":  # through the host they are added up in f32
            assert [case for case in found if case[2] > 1] == []


@pytest.mark.parametrize("where", RUN)
def test_factors_that_the_type_has_not(where):
    for said in RUN[where](2, premultiplied.beyond):
        assert len(said) == 2 and all("(R4)" in text or "R4" in text for text in said), said
