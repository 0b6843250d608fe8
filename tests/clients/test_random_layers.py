"""Random programs of what splits models, against gloo on CPU tensors: random_layers.py."""

import effort
import pytest
import random_dtensors
import random_layers as layers
import random_programs
import split_models

pytestmark = pytest.mark.usefixtures("leaves_ranks")


class Count:
    """How many examples ran, and how much of them the client itself refused."""

    def __init__(self):
        self.examples = self.tried = self.refused = 0

    def add(self, outcome):
        self.examples += 1
        self.tried += outcome.tried
        self.refused += outcome.refused

    def check(self, what):
        print(f"{what}: {self.examples} examples, {self.refused} of {self.tried} parts refused")
        assert self.refused * 2 < self.tried


def play(ranks, examples, recipes, check, what):
    """So many examples, on kept ranks."""
    count = Count()

    @effort.for_each(examples, recipes)
    def each(recipe):
        count.add(layers.run(ranks, check, recipe))

    each()
    count.check(f"{what} on {ranks} ranks")


MODELS = {
    "plans of DTensor": (split_models.splits, split_models.check_splits),
    "pipelines": (split_models.stages, split_models.check_stages),
    "layers of Megatron-core": (split_models.linears, split_models.check_linears),
}

# How many: the first that hypothesis makes is the smallest there is.
PROGRAMS = {1: 3, 2: 10, 3: 4, 4: 4}
EXAMPLES = {1: 0, 2: 2, 3: 2, 4: 0}  # of each kind of model


# Ranks of one number are kept: so one test for each number.
@pytest.mark.parametrize("ranks", PROGRAMS)
def test_is_as_by_gloo(ranks):
    play(
        ranks,
        PROGRAMS[ranks],
        random_dtensors.programs(ranks),
        random_programs.check,
        "DTensors",
    )
    examples = EXAMPLES[ranks] or int(effort.TIMES > 1)
    for what, (make, check) in MODELS.items() if examples else ():
        play(ranks, examples, make(ranks), check, what)
