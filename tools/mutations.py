"""What tools/mutate.py breaks: a text that is in one file of the package, once, and one instead."""

from __future__ import annotations

from typing import NamedTuple


class Mutation(NamedTuple):
    name: str
    text: str
    instead: str
    targets: tuple[str, ...]  # arguments of pytest, or of `bazel test` if they begin with //


def _values(which: str) -> tuple[str, ...]:
    return (f"tests/python/test_values.py -k '{which}'",)


def _calls(which: str) -> tuple[str, ...]:
    return (f"tests/distributed/test_calls.py -k '{which}'",)


_FALLBACKS = (
    "tests/python/test_fallbacks.py -k ways_by_size",
    "tests/python/test_fallbacks.py -k any_calls",
)
_CACHE = ("tests/python/test_cache.py",)
_INVALID = ("tests/python/test_invalid.py -k refused",)
_DISAGREE = ("tests/python/test_disagree.py",)

MUTATIONS = [
    # Lowering rules.
    Mutation(
        "all_to_all swaps dimensions",
        "return ConcatenateBlocks(c, c.Reshape(exchanged, blocks), split_dim, concat_dim);",
        "return ConcatenateBlocks(c, c.Reshape(exchanged, blocks), concat_dim, split_dim);",
        _values("2-all_to_all-"),
    ),
    Mutation(
        "rounds off by one",
        "(static_cast<int64_t>(number) - i % circle + circle) % circle;",
        "(static_cast<int64_t>(number) - i % circle + circle + 1) % circle;",
        _FALLBACKS,
    ),
    Mutation(
        "no mask of absent members",
        "present = c.Select(mask, x, c.Fill(neutral, x.shape));",
        "present = c.Select(mask, x, x);",
        _FALLBACKS,
    ),
    Mutation(
        "identity of and is 1",
        'return c.Unary("not", c.Scalar(type, 0));',
        "return c.Scalar(type, 1);",
        _values("2-all_reduce-"),
    ),
    Mutation(
        "no channel between threads",
        "if (target_.partitioned || (threads && by_channel)) {",
        "if (target_.partitioned) {",
        _values("2-all_reduce-"),
    ),
    Mutation(
        "ranks in no group left out",
        "if (sizes[rank] == 0) all.push_back({rank});",
        "if (sizes[rank] < 0) all.push_back({rank});",
        _FALLBACKS,
    ),
    Mutation(
        "members not the first axis",
        "if (op.dim > 0) {",
        "if (op.dim > 1) {",
        _values("2-reduce_scatter-"),
    ),
    Mutation(
        "broadcast zeros who is alone",
        " || sizes[rank] == 0;",
        " || sizes[rank] < 0;",
        _FALLBACKS,
    ),
    Mutation(
        "average of the world",
        "? c.Scalar(type, static_cast<double>(groups.Size(world_size)))",
        "? c.Scalar(type, static_cast<double>(world_size))",
        _values("4-all_reduce-"),
    ),
    Mutation(
        "one row too many is kept",
        'c.Compare("LT", c.Iota(indices, 0), c.Fill(limit, indices));',
        'c.Compare("LE", c.Iota(indices, 0), c.Fill(limit, indices));',
        ("tests/python/test_uneven.py -k 'test_all_forms'",),
    ),
    # Verification.
    Mutation(
        "two sources of a target",
        "if (sources[source] || targets[target]) {",
        "if (sources[source]) {",
        _INVALID,
    ),
    Mutation(
        "a root in no group",
        "if (groups.Sizes(call.world_size())[root] == 0) {",
        "if (groups.Sizes(call.world_size())[root] < 0) {",
        ("//tests/lowering:verify_test",),
    ),
    Mutation(
        "a rank in two groups",
        "if (seen[rank]) {",
        "if (seen[rank] && group.size() > 9) {",
        _INVALID,
    ),
    # Keys of plans.
    Mutation(
        "key without dimensions",
        "numbers_.insert(numbers_.end(), shape.dims.begin(), shape.dims.end());",
        "numbers_.push_back(shape.Elements());",
        (*_CACHE, *_DISAGREE),
    ),
    Mutation(
        "key rounds the scale",
        "std::memcpy(&bits, &value, sizeof(bits));",
        "bits = static_cast<int64_t>(value);",
        _CACHE,
    ),
    Mutation(
        "key without the world",
        'key("world_size", target.world_size);',
        "",
        _CACHE,
    ),
    Mutation(
        "insert without a lock",
        "const std::lock_guard<std::mutex> lock(mutex_);\n    if (age != age_) return value;",
        "if (age != age_) return value;",
        _CACHE,
    ),
    # What ranks compare.
    Mutation(
        "shapes are not compared",
        'for (const Shape& shape : operands) lowered.identity += " " + shape.ToString();',
        "for (const Shape& shape : operands) {\n"
        '      lowered.identity += " " + std::to_string(shape.Elements());\n'
        "    }",
        _DISAGREE,
    ),
    Mutation(
        "splits of the wrong rank",
        "calls[from].sent[to] == calls[to].received[from]) continue;",
        "calls[from].sent[to] == calls[from].received[to]) continue;",
        ("tests/distributed/test_faults.py -k 'mismatch and splits'", *_calls("threads-2-")),
    ),
    Mutation(
        "root is not compared",
        'Begin("broadcast", Text(tensors) + ", src " + RankText(opts.rootRank), tensors,',
        'Begin("broadcast", Text(tensors), tensors,',
        ("tests/distributed/test_faults.py -k 'mismatch and root'",),
    ),
    # Threads.
    Mutation(
        "the token is not passed on",
        "if (takes_token && !elsewhere) SetToken(rank, py::object(list[live.size()]));",
        "",
        ("tests/python/test_ordering.py",),
    ),
    Mutation(
        "a send wakes nobody",
        "asked_.erase(at);\n    changed_.notify_all();",
        "asked_.erase(at);",
        _calls("threads-2-"),
    ),
    Mutation(
        "the others go on",
        '_stop(world, ranks, "another rank has failed")',
        "pass",
        ("tests/python/test_launch.py",),
    ),
    Mutation(
        "who waits for a graph is not told",
        "if (world_) world_->Disagree(group.own(), broken_, id_);",
        "",
        ("//tests/threads:meeting_test",),
    ),
    Mutation(
        "a rank left behind drops",
        "if _C.ranks_outlived():\n        return  # what is pending",
        "if False:\n        return  # what is pending",
        ("tests/python/test_left_behind.py -k 'outlives and read_hooks'",),
    ),
    Mutation(
        "a rank left behind goes on",
        "if (World::Outlived()) World::Outside().Throw();",
        "",
        ("tests/python/test_left_behind.py -k 'outlives'",),
    ),
    Mutation(
        "the process ends beside its threads",
        "if (!xla_cc::AtWork::Any()) return;",
        "return;",
        ("tests/python/test_process_end.py -k 'waits_for_a_peer'",),
    ),
    Mutation(
        "lost collectives are run",
        'if " xla_cc::" in line or not depending.isdisjoint(operands):',
        "if not depending.isdisjoint(operands):",
        ("tests/python/test_worlds.py",),
    ),
    Mutation(
        "ranks of other groups are told",
        "if (loss.of_launch && !final_) {",
        "if (!final_) {",
        ("//tests/threads:told_test",),
    ),
    Mutation(
        "a group goes on without what a rank has lost",
        "for (uint64_t group : loss.groups) broken_.emplace(group, failure);",
        "",
        ("//tests/threads:told_test",),
    ),
    Mutation(
        "a compiled call of no group",
        "call.group = world->NumberOf(rank, program->groups[i], call.group);",
        "call.group = 0;",
        ("tests/distributed/test_pending.py -k compiled",),
    ),
    Mutation(
        "a receive does not look for its sender",
        "gone = ends_.check->IsGone(ends_.peer);",
        "ends_.check->ThrowIfBroken();",
        ("tests/distributed/test_faults.py -k 'killed and receive'",),
    ),
    Mutation(
        "helpers take no turns",
        "turn_ended_.wait(lock, free);",
        "",
        ("//tests/threads:world_test_tsan",),
    ),
    Mutation(
        "what is pending is read without a lock",
        "const std::lock_guard<std::mutex> lock(monitor_.mutex);\n"
        "  return Runs(rank) && !ranks_[rank].pending.empty();",
        "return Runs(rank) && !ranks_[rank].pending.empty();",
        ("//tests/threads:world_test_tsan",),
    ),
    # torch.distributed.
    Mutation(
        "root by its place in the group",
        "CollectiveBroadcast{group().devices[root], groups_}",
        "CollectiveBroadcast{root, groups_}",
        _calls("threads-4-subgroups or threads-3-subgroups"),
    ),
    Mutation(
        "reduce writes on all ranks",
        "Reduction(call, x, op, group().rank == root)",
        "Reduction(call, x, op, group().rank >= root)",
        _calls("processes-2-"),
    ),
    Mutation(
        "every reduction is a sum",
        "options.reduceOp = kind;",
        "(void)kind;",
        _calls("processes-2-"),
    ),
    Mutation(
        "work is done too early",
        "left_(steps_.size() + 1) {}",
        "left_(1) {}",
        _calls("processes-2-"),
    ),
    Mutation(
        "the last output is not written",
        "for (size_t i = 0; i < outputs.size(); ++i) Write(outputs[i], scattered[i]);",
        "for (size_t i = 0; i + 1 < outputs.size(); ++i) Write(outputs[i], scattered[i]);",
        _calls("threads-2-"),
    ),
    Mutation(
        "splits of the input received",
        "received_sizes = in_bytes(output, output_splits),",
        "received_sizes = in_bytes(output, input_splits),",
        _calls("processes and all_to_all"),
    ),
    Mutation(
        "keys in the store twice",
        "const std::string call = std::to_string(number);",
        "const std::string call = std::to_string(number % 2);",
        (
            "tests/distributed/test_groups.py -k 'every_barrier'",
            "tests/distributed/test_soak.py -k processes",
        ),
    ),
    # Python.
    Mutation(
        "the backend stays installed",
        "            else:\n                where[key] = before",
        "            else:\n                pass",
        ("tests/python/test_install.py -k 'uninstall or block or as_it_was'",),
    ),
    Mutation(
        "gradient without the scale",
        "lambda g: xm.all_gather(g * scale, scatter_dim, groups),",
        "lambda g: xm.all_gather(g, scatter_dim, groups),",
        ("tests/python/test_functions.py -k 'reduce_scatter and 2'",),
    ),
    Mutation(
        "arguments swapped",
        "fields = (split_dimension, concat_dimension, split_count)",
        "fields = (concat_dimension, split_dimension, split_count)",
        _values("2-all_to_all-"),
    ),
    # Inspection.
    Mutation(
        "own bytes are received",
        "return each_to_each(collective, size) * (size - 1)",
        "return each_to_each(collective, size) * size",
        ("tests/python/test_hlo_traffic.py",),
    ),
    Mutation(
        "wrapped collectives are missed",
        'return min(self.contents(instruction) & COLLECTIVES, default="")',
        'return ""',
        ("tests/python/test_hlo_text.py -k collectives",),
    ),
]
