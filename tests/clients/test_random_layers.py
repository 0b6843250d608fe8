"""Random programs of what splits models, against gloo on CPU tensors: random_layers.py."""

import effort
import pytest
import random_dtensors
import random_layers as layers


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


# How many for each number of ranks.
DTENSORS = {1: 1, 2: 4, 3: 3, 4: 4}


@pytest.mark.parametrize("ranks", DTENSORS)
def test_programs_of_dtensors(ranks):
    count = Count()

    @effort.for_each(DTENSORS[ranks], random_dtensors.programs(ranks))
    def each(program):
        count.add(layers.run(ranks, random_dtensors.check, program))

    each()
    count.check(f"DTensors on {ranks} ranks")
