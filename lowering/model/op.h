// The ops by number and by name; what they are stands in lowering/ops/.
#pragma once

#include <string>

namespace xla_cc {

enum class Op : int {
#define COLLECTIVE(Type, name) k##Type,
#include "lowering/collectives.def"
#undef COLLECTIVE
};

std::string Name(Op op);

// The op of a node's type: OpOf<AllGather>::value.
template <class Node>
struct OpOf;
#define COLLECTIVE(Type, name)               \
  struct Type;                               \
  template <>                                \
  struct OpOf<Type> {                        \
    static constexpr Op value = Op::k##Type; \
  };
#include "lowering/collectives.def"
#undef COLLECTIVE

}  // namespace xla_cc
