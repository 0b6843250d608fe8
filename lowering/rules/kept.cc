#include "lowering/rules/kept.h"

#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lowering/rules/blocks.h"
#include "lowering/rules/filled_up.h"
#include "lowering/rules/kept_route.h"
#include "lowering/rules/stages.h"

namespace xla_cc {

using hlo::Computation;
using hlo::Shape;
using hlo::Value;
using hlo::Values;

namespace {

// The ways of one op: what goes into instructions for x, and the result from what comes out.
struct Ways {
  std::function<Value(const Value& x, const Route& route)> in_stages;
  // Otherwise in one instruction with others that go along the same dimension.
  struct Form {
    std::string name;
    int64_t dim;
    Value operand;
    std::function<Value(const Value& y)> result;
  };
  std::function<Form(const Value& x, const Instruction& instruction)> in_shape;
  std::function<Values(const Values& xs, int64_t dim)> run;
};

Values Each(Emitter& e, Op op, const Values& xs, int64_t dim, const Groups& groups,
            const Ways& ways) {
  const int64_t members = groups.Size(e.world_size());
  Values results(xs.size());
  std::map<int64_t, std::vector<std::pair<size_t, Ways::Form>>> along;  // by dimension
  for (size_t i = 0; i < xs.size(); ++i) {
    const Instruction instruction{op,  e.target(), xs[i].shape,
                                  dim, members,    members == e.world_size()};
    const Route route = RouteOf(instruction, groups);
    if (route.way == Route::kInStages) {
      e.NoteWay(Name(op) + " in stages along the axes");
      results[i] = ways.in_stages(xs[i], route);
      continue;
    }
    Ways::Form form{"", dim, xs[i], [](const Value& y) { return y; }};
    if (route.way == Route::kInBlocks) {
      form = ways.in_shape(xs[i], instruction);
      e.NoteWay(Name(op) + form.name);
    }
    along[form.dim].emplace_back(i, form);
  }
  for (const auto& [of, forms] : along) {
    Values operands;
    for (const auto& [_, form] : forms) operands.push_back(form.operand);
    const Values ys = ways.run(operands, of);
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
  return {ToBlocks(*c, x, instruction.dim, members, kTileRows), [c, part](const Value& y) {
            return c->Reshape(FromBlocks(*c, y, part, kTileRows), part.dims);
          }};
}

}  // namespace

Values AllGatherKept(Emitter& e, const Values& xs, int64_t dim, const Groups& groups) {
  Computation& c = e.c();
  constexpr int64_t kAnyRows = 1;  // an all-gather of two dimensions is kept whatever they are
  Ways ways;
  ways.in_stages = [&](const Value& x, const Route& route) {
    const auto gathered = [&](const Value& block) {
      return GatherInStages(e, block, groups, *route.boxes, route.parts);
    };
    if (x.shape.rank() == 1 || !IsNarrow(x.shape.dims.back())) {
      const Value y = gathered(ToBlocks(c, x, 0, 1, kAnyRows));
      return Joined(c, FromBlocks(c, y, x.shape, kAnyRows), x.shape, dim);
    }
    const int64_t rows = x.shape.dims[0];
    const int64_t columns = x.shape.dims[1];
    const int64_t whole = RoundUp(rows, kTileLanes);
    const Value folded = Folded(c, c.Pad(x, 0, whole - rows));
    const Value y = gathered(c.Reshape(folded, {1, whole * columns / kTileLanes, kTileLanes}));
    const Value parts = c.Reshape(Unfolded(c, y, columns), {y.shape.dims[0], whole, columns});
    return Joined(c, c.Slice(parts, 1, 0, rows), x.shape, dim);
  };
  ways.in_shape = [&](const Value& x, const Instruction&) {
    const Value row = c.Reshape(x, {1, x.shape.Elements()});
    return Ways::Form{" in blocks", 0, row,
                      [&, x](const Value& y) { return Joined(c, y, x.shape, dim); }};
  };
  ways.run = [&](const Values& operands, int64_t along) {
    return e.AllGather(operands, along, groups);
  };
  return Each(e, Op::kAllGather, xs, dim, groups, ways);
}

Values ReduceScatterKept(Emitter& e, const Values& xs, ReduceKind kind, int64_t dim,
                         const Groups& groups) {
  Ways ways;
  ways.in_stages = [&](const Value& x, const Route& route) {
    const int64_t members = groups.Size(e.world_size());
    const Instruction instruction{Op::kReduceScatter, e.target(), x.shape, dim, members, true};
    const Blocks blocks = BlocksOf(e, x, instruction, groups);
    return blocks.own(ScatterInStages(e, blocks.blocks, kind, groups, *route.boxes, route.parts));
  };
  ways.in_shape = [&](const Value& x, const Instruction& instruction) {
    if (const auto sizes = InPlace(instruction)) {
      const Value filled = FillUp(e.c(), x, dim, instruction.members, *sizes);
      return Ways::Form{" filled up", dim, filled, [&, sizes = *sizes](const Value& y) {
                          return OwnPart(e, y, dim, groups, sizes);
                        }};
    }
    const Blocks blocks = BlocksOf(e, x, instruction, groups);
    return Ways::Form{" in blocks", 0, blocks.blocks, blocks.own};
  };
  ways.run = [&](const Values& operands, int64_t along) {
    return e.ReduceScatter(operands, kind, along, groups);
  };
  return Each(e, Op::kReduceScatter, xs, dim, groups, ways);
}

}  // namespace xla_cc
