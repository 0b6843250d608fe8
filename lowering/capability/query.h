// What the capability table is asked.
#pragma once

#include <optional>
#include <type_traits>

#include "lowering/capability/form.h"
#include "lowering/hlo/element_type.h"
#include "lowering/model/op.h"
#include "lowering/model/reduction.h"
#include "lowering/target.h"

namespace xla_cc {

// What is asked: one op on one element type.
struct Query {
  Op op;
  const Target& target;
  hlo::ElementType type;
  std::optional<ReduceKind> reduce;  // what the instruction computes; none for data movement
  Form form = Form::kWorld;
  int64_t group_size = 0;      // of the longest group; 0 for pairs
  bool several_sizes = false;  // of groups
};

// The question that a node puts, read off its fields.
template <class Node>
Query QueryFor(const Node& node, const Target& target, hlo::ElementType type) {
  Query query{OpOf<Node>::value, target, type, std::nullopt};
  Node::Fields(node, [&](const char*, const auto& field) {
    using Field = std::decay_t<decltype(field)>;
    if constexpr (std::is_same_v<Field, Groups>) {
      query.form = FormOf(field, target);
      query.group_size = field.Size(target.world_size);
      query.several_sizes = !field.Uniform();
    } else if constexpr (std::is_same_v<Field, Pairs>) {
      query.form = FormOf(field);
    } else if constexpr (std::is_same_v<Field, ReduceKind>) {
      query.reduce = Reduction{field}.InstructionKind();
    }
  });
  return query;
}

}  // namespace xla_cc
