"""TORCH_XLA_CC_POD_PROGRAMS=same: ranks run one program, as on a TPU pod."""

import one_program
import pods
import pytest

from torch_xla_cc._pod.pod_device import meetings

RANKS = 3


def told(what, **env):
    with pods.ranks(RANKS, TORCH_XLA_CC_TIMEOUT_S="20", **env) as ranks:
        return ranks.run(pods.joined, one_program.told, what, timeout_s=60.0)


def test_the_same_program_runs():
    total = 9.0 / 2 * 3 / 2 * 3 / 2  # of 2, 3 and 4
    assert told("same", TORCH_XLA_CC_POD_PROGRAMS="same") == [[total] * 6] * RANKS


def test_collectives_of_stablehlo_are_refused():
    """In which the pod does not order them."""
    for said in told("same", XLA_STABLEHLO_COMPILE="1"):
        assert "Unset XLA_STABLEHLO_COMPILE" in said


@pytest.mark.parametrize(
    ("what", "of_each"),
    [
        ("a_rank_in_it", "= f32[2] slice(p1.2), slice={["),
        ("read_by_one", ""),
    ],
)
def test_the_first_instruction_that_differs_is_said(what, of_each):
    for said in told(what, TORCH_XLA_CC_POD_PROGRAMS="same"):
        assert isinstance(said, str), said
        assert said.count(" has instruction ") == 2, said
        assert said.count(of_each) >= 2, said


@pytest.mark.parametrize(
    ("line", "same"),
    [
        ("ROOT add.9 = f32[] add(x.7, x.7)", True),  # another rank has counted otherwise
        ("ROOT add.9 = f32[] add(x.7, y.7)", False),
        ('ROOT add.9 = f32[] add(x.7, x.7), custom="f.8"', False),  # no name of an instruction
    ],
)
def test_numbers_of_names_are_no_difference(line, same):
    def said(*lines):
        return meetings.of_instructions("\n".join(lines), RANKS).groups

    own = said("x.1 = f32[] parameter(0)", "ROOT add.2 = f32[] add(x.1, x.1)")
    assert (said("x.7 = f32[] parameter(0)", line) == own) is same
    quoted = [said(f'ROOT x.{n} = f32[] custom-call(), target="f.{n}"') for n in (1, 2)]
    assert quoted[0] != quoted[1]


def test_others_may_differ():
    assert all(isinstance(said, list) for said in told("a_rank_in_it"))
