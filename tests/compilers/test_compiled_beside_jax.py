"""benchmarks/compiled.py, of two programs: what the compiler makes of ours is no worse than what it
makes of JAX's."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("jax", reason="pip install 'torch_xla_cc[aot]' brings JAX")
pytest.importorskip("libtpu", reason="pip install 'torch_xla_cc[aot]' brings the compiler")

from torch_xla_cc import _aot

TARGET = "tpu:v5e:2x4"
NAMES = ("data parallel", "FSDP, MLP")
# Of the gradients of four weights of 2048 x 2048, bf16, on 8 chips: half of what comes to a rank.
FEWEST = 2 * 7 * (4 * 2048 * 2048 * 2) // 8 // 2


@pytest.fixture(scope="module")
def benchmarks():
    """Modules of them."""
    folder = str(Path(__file__).parents[2] / "benchmarks")
    sys.path.insert(0, folder)
    try:
        import compiled
        import compiled_figures
        import compiled_programs
    finally:
        sys.path.remove(folder)
    return compiled, compiled_figures, compiled_programs


@pytest.fixture(scope="module")
def pairs(benchmarks):
    """By program: the figures of ours and of JAX's."""
    compiled, compiled_figures, compiled_programs = benchmarks
    some = [program for program in compiled_programs.PROGRAMS if program.name in NAMES]
    modules = list(compiled.modules(TARGET, some))
    found = {}
    for side in compiled.SIDES:
        made = [(name, hlo) for name, of, hlo in modules if of == side]
        programs = _aot.compile_many([hlo for _, hlo in made], compiled.compiled_for(side, TARGET))
        for (name, hlo), program in zip(made, programs, strict=True):
            found[name, side] = compiled_figures.figures(
                hlo, program.hlo, program.memory, program.cost, TARGET, 8
            )
    return {name: (found[name, "ours"], found[name, "jax"]) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_no_worse_than_jax(pairs, name):
    ours, jax = pairs[name]
    assert ours.link <= jax.link
    assert ours.peak <= 1.02 * jax.peak
    assert ours.helped >= jax.helped
    assert ours.added == jax.added == 0  # what each call became is known
    assert ours.calls == jax.calls


@pytest.mark.parametrize("name", NAMES)
def test_fewest_bytes(pairs, name):
    ours, _ = pairs[name]
    assert ours.link == FEWEST


def test_gradients_are_one_all_reduce(pairs):
    ours, _ = pairs["data parallel"]
    assert ours.opcodes == {"all-reduce": 1}
    assert (ours.combined, ours.helped, ours.calls) == (1, 4, 4)


def test_what_combining_costs_on_v5p(benchmarks):
    """docs/compiled.md: apart, peak and HBM bytes are those of JAX, which leaves them so."""
    compiled, _, compiled_programs = benchmarks
    target = "tpu:v5p:4x4x4"
    some = [program for program in compiled_programs.PROGRAMS if program.name == NAMES[0]]
    of = {side: hlo for _, side, hlo in compiled.modules(target, some)}
    apart = {"xla_jf_crs_combiner_threshold_in_bytes": 0}
    ours = [_aot.compile_hlo(of["ours"], target, options=options) for options in ({}, apart)]
    jax = _aot.compile_hlo(of["jax"], compiled.compiled_for("jax", target))
    assert [len(_aot.collectives(one)) for one in ours] == [1, 4]
    assert ours[0].memory["temporaries"] > jax.memory["temporaries"]
    assert ours[1].memory["temporaries"] == jax.memory["temporaries"]
    assert ours[1].cost["bytes accessed"] == jax.cost["bytes accessed"]
