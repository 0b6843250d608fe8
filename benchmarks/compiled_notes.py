"""What docs/compiled.md says about its tables."""

NOTES = """
What the compilers make of the same programs of training, ours (torch, torch_xla_cc) and JAX's
(`shard_map`), ahead of time and with none of these devices. These are counts and bytes, not
times.

- A program is the gradients of a loss by all weights and by the input, in bf16, without an
  optimizer; nothing is donated. `benchmarks/compiled_programs.py` has each once, for both sides.
- Our ranks are replicas and JAX's are partitions, as each runs by default, on the same devices.
- Link: bytes over the link that carries most, in one direction, of the whole program
  ([inspect.md](inspect.md), "Bytes"). Wire: bytes that a rank receives. By the model of `inspect`.
- Peak: arguments, outputs and temporaries. HBM: bytes accessed. As the compiler states them; the
  GPU's states no bytes accessed.
- Counts are of instructions of the compiled program. Combined: several calls are in one. Beside:
  it runs beside a computation. Alone: neither. Waiting: nothing runs beside it. Added: no call
  became it, the compiler made it. Helped: of the calls, how many are combined or run beside a
  computation. Calls of ours are those after lowering: one in stages is several.
- Bytes waiting are those that a rank receives while nothing computes.
- Aims: link at most 1.00 of JAX's, peak at most 1.02, as many calls helped. Where ours goes in
  stages, counts of the two sides do not compare; bytes waiting do.

What the programs show, as of the date above:

- Where JAX's reduce-scatters, or all-gathers, become all-reduces of everything (FSDP on 64 and 256
  chips), ours stay what they are, in two stages, at 0.60 to 0.74 of the bytes on the busiest link
  ([spec.md](spec.md#forms-that-a-tpu-keeps)).
- The TPU's compiler combines all-reduces of replicas, and not those of JAX's partitions.
  That is the larger peak of data parallel on v5p: with the option
  `xla_jf_crs_combiner_threshold_in_bytes=0` they stay four, and peak and HBM bytes are JAX's.
- Reduce-scatters that are kept run beside nothing and are combined with nothing, in JAX neither
  (FSDP on 2x4), whatever option is set ([overlap.md](overlap.md)). So on 64 and 256 chips fewer
  calls of ours are helped than of JAX, which has combined all-reduces of everything there, and
  more bytes that wait.
- On some targets JAX's large reduce-scatters are cut unevenly by the compiler and put right by
  collective-permutes (added). Ours have none.
- JAX's larger temporaries of tensor parallel programs on GPU and v5p are not explained yet.
- All-to-alls and shifts are the same on both sides.
"""
