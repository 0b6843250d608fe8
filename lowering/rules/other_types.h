// Reductions in a type that the device reduces, for those that it does not.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "lowering/model/reduction.h"
#include "lowering/rules/lower_op.h"

namespace xla_cc {

// `split` gives values of `type`, which are reduced by `kind`, one by one; `join` makes the result
// of theirs. Exact, but for narrow floats: they are reduced in f32 and rounded once, at the end.
struct OtherType {
  hlo::ElementType type;
  ReduceKind kind;
  std::function<hlo::Values(hlo::Computation&, const hlo::Value&)> split;
  std::function<hlo::Value(hlo::Computation&, const hlo::Values&)> join;
};

// In the order of preference.
std::vector<OtherType> OtherTypes(ReduceKind kind, hlo::ElementType type);

// op(x) in another type, if the device's compiler does not take the op for the type of x in any
// groups, and takes it for one of the others.
template <class T>
std::optional<hlo::Value> InAnotherType(const T& op, Emitter& e, const hlo::Value& x) {
  T world = op;
  world.groups = Groups();
  if (Takes(world, e, x.shape.type)) return std::nullopt;
  const ReduceKind kind = op.reduction.InstructionKind();
  for (const OtherType& other : OtherTypes(kind, x.shape.type)) {
    world.reduction = {other.kind};
    if (!Takes(world, e, other.type)) continue;
    // Floats are scaled in the wider type as well; all others wrap in their own before that.
    const bool all = hlo::Class(x.shape.type) == hlo::TypeClass::kFloat8 ||
                     hlo::Class(x.shape.type) == hlo::TypeClass::kFloat;
    T inner = op;
    if (!all) inner.reduction = {other.kind};
    hlo::Computation& c = e.c();
    hlo::Values parts = other.split(c, all ? x : BeforeReducing(op.reduction, c, x));
    for (hlo::Value& part : parts) part = Lower(inner, e, {part})[0];
    const hlo::Value y = other.join(c, parts);
    return all ? y : AfterReducing(op.reduction, c, y, op.groups, e.world_size());
  }
  return std::nullopt;
}

}  // namespace xla_cc
