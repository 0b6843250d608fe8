"""Operands and groups that tests try the collectives on."""

import numpy as np
from oracle import COMPLEX, INTEGERS, numpy_dtype


def group_forms(world, unequal=False):
    """The world as None, and lists of groups of every form."""
    ranks = list(range(world))
    half = world // 2
    forms = [
        None,
        [ranks[::2][::-1] + ranks[1::2]],  # the order in the group is not that of the ranks
        [[rank] for rank in ranks],
    ]
    if world > 2:
        forms += [
            [ranks[:half], ranks[half:]],
            [ranks[0::2], ranks[1::2]],
            [[3, 0], [1, 2], *([rank + 1, rank] for rank in range(4, world, 2))],
        ]
    if world > 2 and unequal:
        forms += [[ranks[:-1], ranks[-1:]], [[1], [3, 0, 2], *([ranks[4:]] if world > 4 else [])]]
    return forms


def any_bits(rng, dtype, shape):
    """Values of random bits; a third of the floats are infinite or NaN."""
    if dtype == "pred":
        return rng.integers(0, 2, shape).astype(bool)
    of = numpy_dtype(dtype)
    values = np.frombuffer(rng.bytes(int(np.prod(shape)) * of.itemsize), of).copy()
    if dtype in INTEGERS:
        return values.reshape(shape)
    part = values.view(of.type(0).real.dtype)  # of a complex number
    bits = part.view(f"u{part.dtype.itemsize}")
    exponent = np.array(np.nan, part.dtype).view(bits.dtype)
    np.bitwise_or(bits, exponent, out=bits, where=rng.integers(0, 3, bits.shape) == 0)
    np.copyto(
        bits, bits.dtype.type(1 << (8 * bits.itemsize - 1)), where=rng.random(bits.shape) < 0.1
    )
    if dtype == "f16":
        values[np.isnan(values)] = np.nan  # a transfer keeps no other (test_what_transfers_lose)
    return values.reshape(shape)


def exact_values(rng, dtype, shape, kind):
    """Values whose reduction is the same in every order; in floats because no step rounds."""
    if dtype == "pred" or dtype in INTEGERS:
        return any_bits(rng, dtype, shape)
    if kind == "mul":
        values = rng.choice([1, -1, 0.5, 2], shape)
        units = rng.choice([1, -1, 1j, -1j], shape)
    else:
        values = rng.integers(-8, 9, shape).astype(float)
        units = rng.choice([1, -1, 1j, 1 + 1j], shape)
    return (values * units if dtype in COMPLEX else values).astype(numpy_dtype(dtype))
