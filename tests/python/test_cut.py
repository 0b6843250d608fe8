"""Programs without the part that is known: what computes the same is the same in its bytes."""

import itertools

import pytest
import torch
import torch_xla

from torch_xla_cc._hlo import cut, protobuf
from torch_xla_cc._processes import evaluate
from torch_xla_cc._runtime.private import XLAC


def on_device(*sizes):
    """Tensors with data of their own."""
    generator = torch.Generator().manual_seed(len(sizes))
    made = [torch.randn(size, generator=generator).to(torch_xla.device()) for size in sizes]
    torch_xla.sync()
    return made


def cut_of(roots, known):
    return cut.outputs_as_parameters(XLAC._get_xla_tensors_hlo_proto([*roots, *known]), len(roots))


def opcodes(module):
    module = protobuf.HloModuleProto.FromString(module)
    return [one.opcode for one in module.computations[-1].instructions]


def evaluated(roots, known, values=()):
    """What the program of the cut gives, where the values are those of what is known."""
    chosen = evaluate.program(roots, known)
    taken = [values[place].to(torch_xla.device()) for place in chosen.used]
    return [x.cpu() for x in evaluate.run(chosen, roots, known, taken)]


def test_the_same_out_of_larger_and_larger_graphs():
    layer, *data = on_device((4, 3), *[(2, 4)] * 5)
    found, before = set(), []
    for x in data:
        middle = (x @ layer).sum(0)
        found.add(cut_of([middle.exp() * layer.sum()], [*before, middle]).module)
        before.append(middle)
    assert len(found) == 1


def test_another_computation_has_other_bytes():
    a, b = on_device((3,), (3,))
    roots = [a - b, b - a, a - a, a + b, (a - b).neg(), a - b * 2.0, a[:2] - b[:2]]
    cuts = [cut_of([root], []) for root in roots]
    assert len({one.module for one in cuts}) == len(roots) - 1
    assert cuts[0].module == cuts[1].module  # of other inputs


def test_inputs_are_in_the_order_of_the_walk():
    a, b, c = on_device((3,), (3,), (3,))
    x, y, z = a.cpu(), b.cpu(), c.cpu()
    middle = a * b
    root = c / (middle + a)
    assert torch.allclose(evaluated([root], [middle], [x * y])[0], z / (x * y + x))
    assert torch.allclose(evaluated([root], [middle], [x])[0], z / (x + x))  # it is taken
    assert torch.allclose(evaluated([root], [])[0], z / (x * y + x))


def test_nothing_of_what_is_known_is_left():
    a, b = on_device((3,), (3,))
    middle = (a * b).exp()
    of = cut_of([middle + 1.0, middle.sum()], [b.cos(), middle])
    assert of.had + 1 in of.inputs
    assert of.had not in of.inputs
    assert not {"exponential", "cosine"} & {*opcodes(of.module)}


def test_a_root_that_is_known_itself_and_one_twice():
    a, b = on_device((3,), (3,))
    x, y = a.cpu(), b.cpu()
    middle = a * b
    ours = evaluated([middle, middle + b], [middle], [x])
    assert torch.equal(ours[0], x)
    assert torch.allclose(ours[1], x + y)
    again = evaluated([middle, middle], [])
    assert torch.equal(again[0], again[1])


def test_what_needs_nothing():
    root = torch.zeros(3, device=torch_xla.device()) + 2
    assert evaluated([root], [])[0].tolist() == [2.0] * 3


@pytest.mark.parametrize("seed", range(4))
def test_computations_that_are_called(seed):
    """Reductions call one: they are numbered anew, and still find it."""
    x, y = on_device((5, 4), (4,))

    def roots(x, y):
        made = [x.amax(0) + y, x.sum(1), x.prod().reshape(1), (x * y).softmax(1).flatten()]
        return [*itertools.permutations(made)][5 * seed]

    expected = roots(x.cpu(), y.cpu())
    for ours, theirs in zip(evaluated(roots(x, y), []), expected, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


def test_module_is_one_that_protobuf_and_xla_take():
    (x,) = on_device((5, 4))
    module = protobuf.HloModuleProto.FromString(cut_of([x.sum(0), x.amax(1)], []).module)
    ids = [one.id for c in module.computations for one in c.instructions]
    assert len({*ids, *(c.id for c in module.computations)}) == len(ids) + len(module.computations)
    for computation in module.computations:
        seen = set()
        for one in computation.instructions:
            assert {*one.operand_ids} <= seen  # operands come first
            seen.add(one.id)
        assert computation.root_id in seen
