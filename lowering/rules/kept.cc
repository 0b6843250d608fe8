#include "lowering/rules/kept.h"

#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lowering/rules/blocks.h"
#include "lowering/rules/filled_up.h"
#include "lowering/rules/kept_route.h"

namespace xla_cc {

using hlo::Computation;
using hlo::Shape;
using hlo::Value;
using hlo::Values;

namespace {

// What goes into an instruction for an operand, and the result from what comes out.
struct Form {
  std::string name;
  int64_t dim;
  Value operand;
  std::function<Value(const Value& y)> result;
};

// The ways of one op.
struct Ways {
  std::function<Form(const Value& x, const Instruction& instruction, bool in_stages)> in_shape;
  std::function<Values(const Values& xs, int64_t dim)> run;
  std::function<Values(const Values& xs, int64_t dim, const Neighbours& stages)> run_in_stages;
};

// A form of x without its dimensions of one element, which `instruction` has.
Form InSqueezedShape(Computation& c, const Value& x, const Instruction& instruction, bool in_stages,
                     const Ways& ways, int64_t dim) {
  const Value squeezed = c.Reshape(x, instruction.operand.dims);
  Form form = ways.in_shape(squeezed, instruction, in_stages);
  std::vector<int64_t> dims = x.shape.dims;
  const bool gathers = instruction.op == Op::kAllGather;
  dims[dim] = gathers ? dims[dim] * instruction.members : dims[dim] / instruction.members;
  form.result = [&c, dims, result = form.result](const Value& y) {
    return c.Reshape(result(y), dims);
  };
  return form;
}

// Those that go the same way along the same dimension go in one instruction, if it is kept then.
Values Each(Emitter& e, Op op, const Values& xs, int64_t dim, const Groups& groups,
            const Ways& ways) {
  const int64_t members = groups.Size(e.world_size());
  Values results(xs.size());
  Routes routes(e.target(), groups);
  // By stages, dimension, and which it is of those that go alone.
  std::map<std::tuple<bool, int64_t, size_t>, std::vector<std::pair<size_t, Form>>> together;
  for (size_t i = 0; i < xs.size(); ++i) {
    Instruction instruction{op, e.target(), xs[i].shape, dim, members, members == e.world_size()};
    instruction.operand.dims = Squeezed(xs[i].shape.dims, &instruction.dim);
    const auto [reshaped, in_stages] = routes.Of(instruction);
    Form form{"", dim, xs[i], [](const Value& y) { return y; }};
    if (reshaped) form = InSqueezedShape(e.c(), xs[i], instruction, in_stages, ways, dim);
    const std::string name = (in_stages ? " in two stages" : "") + form.name;
    if (!name.empty()) e.NoteWay(Name(op) + name);
    const bool alone = !in_stages && IsEverKept(instruction) && IsKeptInGroups(instruction) &&
                       !IsKeptInLists(instruction);
    together[{in_stages, form.dim, alone ? i + 1 : 0}].emplace_back(i, form);
  }
  for (const auto& [way, forms] : together) {
    const auto [in_stages, along, _] = way;
    Values operands;
    for (const auto& [i, form] : forms) operands.push_back(form.operand);
    const Values ys = in_stages ? ways.run_in_stages(operands, along, routes.stages())
                                : ways.run(operands, along);
    for (size_t k = 0; k < ys.size(); ++k) results[forms[k].first] = forms[k].second.result(ys[k]);
  }
  return results;
}

// Its parts in whole tiles where they are: nothing when the compiler does not keep that either.
std::optional<FilledUp> InPlace(Instruction instruction) {
  const int64_t part = instruction.operand.dims[instruction.dim] / instruction.members;
  for (const int64_t unit : {kTileRows, 2 * kTileRows, kTileLanes, 2 * kTileLanes}) {
    const FilledUp sizes{part, RoundUp(part, unit)};
    instruction.filled_up = sizes.whole != part;
    instruction.operand.dims[instruction.dim] = sizes.whole * instruction.members;
    if (sizes.Pays(instruction.members) && IsKeptInShape(instruction)) return sizes;
  }
  return std::nullopt;
}

// Parts along the first dimension as [members, rows, columns] of whole tiles, filled up at the end.
struct Rows {
  FilledUp sizes;
  int64_t columns = kTileLanes;
  bool folded = false;  // narrow ones

  static std::optional<Rows> Of(const Instruction& instruction) {
    if (instruction.dim != 0) return std::nullopt;
    const std::vector<int64_t>& dims = instruction.operand.dims;
    Rows rows;
    int64_t unit = kTileRows * kTileLanes;  // of a vector
    if (dims.size() > 1) {
      const int64_t inner = instruction.operand.Elements() / dims[0] / dims.back();
      rows.folded = IsNarrow(dims.back());
      if (!rows.folded && !FillsLanes(dims.back())) return std::nullopt;
      if (!rows.folded) rows.columns = dims.back();
      unit = rows.folded ? kTileLanes * kTileRows / std::gcd(kTileRows, dims.back())
                         : kTileRows / std::gcd(kTileRows, inner);
    }
    const int64_t part = dims[0] / instruction.members;
    rows.sizes = {part, RoundUp(part, unit)};
    return rows.sizes.Pays(instruction.members) ? std::optional(rows) : std::nullopt;
  }
};

// Blocks [members, rows, columns] of x, and the part of this rank from its own block.
struct Blocks {
  Value blocks;
  std::function<Value(const Value& y)> own;
};

Blocks BlocksOf(Emitter& e, const Value& x, const Instruction& instruction, const Groups& groups) {
  Computation* c = &e.c();
  const int64_t members = instruction.members;
  if (const auto rows = Rows::Of(instruction)) {
    const Value all = FillUp(*c, x, 0, members, rows->sizes);
    std::vector<int64_t> own = all.shape.dims;
    own[0] /= members;
    const int64_t count = all.shape.Elements() / members / rows->columns;
    const Value ordered = rows->folded ? Folded(*c, all) : all;
    return {c->Reshape(ordered, {members, count, rows->columns}),
            [&e, c, own, rows = *rows, groups](const Value& y) {
              const Value whole = rows.folded ? Unfolded(*c, y, own.back()) : c->Reshape(y, own);
              return OwnPart(e, whole, 0, groups, rows.sizes);
            }};
  }
  Shape part = x.shape;
  part.dims[instruction.dim] /= members;
  return {ToBlocks(*c, x, instruction.dim, members),
          [c, part](const Value& y) { return c->Reshape(FromBlocks(*c, y, part), part.dims); }};
}

}  // namespace

// In the order of ranks: the two of a pair are neighbours in it.
Values AllGatherKept(Emitter& e, const Values& xs, int64_t dim, const Groups& groups) {
  Ways ways;
  ways.in_shape = [&](const Value& x, const Instruction& instruction, bool) {
    const Value row = e.c().Reshape(x, {1, x.shape.Elements()});
    return Form{" in blocks", 0, row, [&, x, at = instruction.dim](const Value& y) {
                  return Joined(e.c(), y, x.shape, at);
                }};
  };
  ways.run = [&](const Values& operands, int64_t along) {
    return e.AllGather(operands, along, groups);
  };
  ways.run_in_stages = [&](const Values& operands, int64_t along, const Neighbours& stages) {
    return e.AllGather(e.AllGather(operands, along, stages.pairs), along, stages.others);
  };
  return Each(e, Op::kAllGather, xs, dim, groups, ways);
}

Values ReduceScatterKept(Emitter& e, const Values& xs, ReduceKind kind, int64_t dim,
                         const Groups& groups) {
  Ways ways;
  ways.in_shape = [&](const Value& x, const Instruction& instruction, bool in_stages) {
    const auto sizes = in_stages ? std::nullopt : InPlace(instruction);
    if (sizes) {
      const int64_t at = instruction.dim;
      const Value filled = FillUp(e.c(), x, at, instruction.members, *sizes);
      return Form{" filled up", at, filled, [&, at, sizes = *sizes](const Value& y) {
                    return OwnPart(e, y, at, groups, sizes);
                  }};
    }
    const Blocks blocks = BlocksOf(e, x, instruction, groups);
    return Form{" in blocks", 0, blocks.blocks, blocks.own};
  };
  ways.run = [&](const Values& operands, int64_t along) {
    return e.ReduceScatter(operands, kind, along, groups);
  };
  ways.run_in_stages = [&](const Values& operands, int64_t along, const Neighbours& stages) {
    const Values halves = e.ReduceScatter(operands, kind, along, stages.others);
    return e.ReduceScatter(halves, kind, along, stages.pairs);
  };
  return Each(e, Op::kReduceScatter, xs, dim, groups, ways);
}

}  // namespace xla_cc
