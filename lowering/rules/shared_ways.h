// Ways that several ops have.
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include "lowering/hlo/rounded.h"
#include "lowering/rules/bits.h"
#include "lowering/rules/by_rank.h"
#include "lowering/rules/lower_op.h"
#include "lowering/rules/other_types.h"
#include "lowering/rules/reducing.h"

namespace xla_cc {

template <class T>
T WithGroups(T op, Groups groups) {
  op.groups = std::move(groups);
  return op;
}

// The op in the world: what is asked to know if the device takes a type at all. An op without
// groups is what it is.
template <class T, class = void>
struct InTheWorld {
  static const T& Of(const T& op) { return op; }
};
template <class T>
struct InTheWorld<T, std::void_t<decltype(T::groups)>> {
  static T Of(const T& op) { return WithGroups(op, Groups()); }
};

// Whether an op in groups may be made of that of the world: not where others may do something else.
template <class T>
bool TakesTheWorld(const T& op, const Emitter& e, const hlo::Value& x) {
  return !op.groups.IsWorld() && !e.target().OnlyMembersMeet() &&
         Takes(WithGroups(op, Groups()), e, x.shape.type);
}

// Data movement of a type = that of its bits.
template <class T>
Way<T> OfItsBits() {
  return {"of its bits",
          [](const T& op, const Emitter& e, const hlo::Value& x) {
            const T& anywhere = InTheWorld<T>::Of(op);
            return !Takes(anywhere, e, x.shape.type) && Takes(anywhere, e, BitsType(x.shape.type));
          },
          [](const T& op, Emitter& e, const hlo::Value& x) {
            return MapBits(e.c(), x, [&](const hlo::Value& bits) { return LowerOne(op, e, bits); });
          }};
}

// A reduction in another type which holds the values of this one, for types that the device takes
// in no groups at all. The first such type that it takes.
template <class T>
std::optional<OtherType> TypeInstead(const T& op, const Emitter& e, const hlo::Value& x) {
  T world = WithGroups(op, Groups());
  if (Takes(world, e, x.shape.type)) return std::nullopt;
  for (const OtherType& other : OtherTypes(op.reduction.InstructionKind(), x.shape.type)) {
    world.reduction = {other.kind};
    if (Takes(world, e, other.type)) return other;
  }
  return std::nullopt;
}

// A reduction of a type = that of another which holds its values.
template <class T>
Way<T> InAnotherType() {
  return {"in another type",
          [](const T& op, const Emitter& e, const hlo::Value& x) {
            return TypeInstead(op, e, x).has_value();
          },
          [](const T& op, Emitter& e, const hlo::Value& x) {
            const OtherType other = *TypeInstead(op, e, x);
            hlo::Computation& c = e.c();
            // Floats are scaled in the wider type as well, by what their own type has; others wrap
            // in their own before that.
            const bool all = hlo::Class(x.shape.type) == hlo::TypeClass::kFloat8 ||
                             hlo::Class(x.shape.type) == hlo::TypeClass::kFloat;
            T inner = op;
            if (!all) inner.reduction = {other.kind};
            for (double* scale : {&inner.reduction.factor, &inner.reduction.scale}) {
              *scale = hlo::Rounded(x.shape.type, *scale);
            }
            hlo::Values pieces = other.split(c, all ? x : BeforeReducing(op.reduction, c, x));
            for (hlo::Value& piece : pieces) piece = LowerOne(inner, e, piece);
            const hlo::Value y = other.join(c, pieces);
            return all ? y : AfterReducing(op.reduction, c, y, op.groups, e.world_size());
          }};
}

// A reduction with factor and scale, or an average = the plain one with arithmetic around it.
template <class T>
Way<T> WithScalingAround() {
  return {"with the scaling around it",
          [](const T& op, const Emitter&, const hlo::Value&) {
            return op.reduction.InstructionKind() != op.reduction.kind || op.reduction.scale != 1.0;
          },
          [](const T& op, Emitter& e, const hlo::Value& x) {
            T plain = op;
            plain.reduction = {op.reduction.InstructionKind()};
            const hlo::Value y = Continue(plain, e, BeforeReducing(op.reduction, e.c(), x));
            return AfterReducing(op.reduction, e.c(), y, op.groups, e.world_size());
          }};
}

// What lies in blocks along a dimension, one for each member in group order.
enum class Blocks { kOfOperand, kOfResult, kOfBoth };

// An op in another order = reordering of the operand's blocks ; the op in rank order ; reordering
// of the result's.
template <class T, int64_t T::* kDim, Blocks kBlocks>
Way<T> InRankOrder() {
  return {"in rank order",
          [](const T& op, const Emitter& e, const hlo::Value& x) {
            return op.groups.Uniform() && !op.groups.Ascending() &&
                   Takes(WithGroups(op, op.groups.Sorted()), e, x.shape.type);
          },
          [](const T& op, Emitter& e, const hlo::Value& x) {
            hlo::Value y = x;
            if (kBlocks != Blocks::kOfResult) {
              y = ReorderBlocks(e.c(), y, op.*kDim, ToRankOrder(op.groups, e.world_size()));
            }
            y = LowerOne(WithGroups(op, op.groups.Sorted()), e, y);
            if (kBlocks != Blocks::kOfOperand) {
              y = ReorderBlocks(e.c(), y, op.*kDim, ToGroupOrder(op.groups, e.world_size()));
            }
            return y;
          }};
}

// Whether an op that leaves ranks out may be made of one with them in groups of their own.
template <class T>
bool TakesCompletedGroups(const T& op, const Emitter& e, const hlo::Value& x) {
  if (e.target().RanksAreThreads() || op.groups.Covers(e.world_size())) return false;
  const auto completed = op.groups.Completed(e.world_size());
  return completed && Takes(WithGroups(op, *completed), e, x.shape.type);
}

template <class T>
hlo::Value LowerInCompletedGroups(const T& op, Emitter& e, const hlo::Value& x) {
  return LowerOne(WithGroups(op, *op.groups.Completed(e.world_size())), e, x);
}

// An op without some ranks = the op with them in groups of their own ; zeros there.
template <class T>
Way<T> InCompletedGroups() {
  return {"in completed groups", &TakesCompletedGroups<T>,
          [](const T& op, Emitter& e, const hlo::Value& x) {
            return KeepByRank(e.c(), LowerInCompletedGroups(op, e, x),
                              op.groups.Sizes(e.world_size()));
          }};
}

}  // namespace xla_cc
