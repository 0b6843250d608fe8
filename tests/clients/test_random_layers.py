"""Random programs of what splits models, against gloo on CPU tensors: random_layers.py."""

import effort
import pytest
import random_dtensors
import random_layers as layers
import random_models
import random_programs


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


# Ranks of one number are kept: so one test for each number.
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_is_as_by_gloo(ranks):
    times = 3 if ranks == 2 else 1
    play(ranks, 4 * times, random_dtensors.programs(ranks), random_programs.check, "DTensors")
    for make, check, what in (
        (random_models.splits, random_models.check_splits, "plans of DTensor"),
        (random_models.stages, random_models.check_stages, "pipelines"),
        (random_models.linears, random_models.check_linears, "layers of Megatron-core"),
    ):
        play(ranks, times, make(ranks), check, what)
