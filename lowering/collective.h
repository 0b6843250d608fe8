// The nodes as one type, and what is read off their fields.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "lowering/model/op.h"
#include "lowering/ops/all_gather.h"
#include "lowering/ops/all_reduce.h"
#include "lowering/ops/all_to_all.h"
#include "lowering/ops/collective_broadcast.h"
#include "lowering/ops/collective_permute.h"
#include "lowering/ops/recv.h"
#include "lowering/ops/reduce_scatter.h"
#include "lowering/ops/send.h"
#include "lowering/ops/uneven_all_gather.h"
#include "lowering/ops/uneven_all_to_all.h"
#include "lowering/ops/uneven_reduce_scatter.h"

namespace xla_cc {

using Collective = std::variant<std::monostate
#define COLLECTIVE(Type, name) , Type
#include "lowering/collectives.def"
#undef COLLECTIVE
                                >;

// f(the node), whatever its type.
template <class Variant, class Function>
auto Visit(Variant& collective, Function&& f) {
#define COLLECTIVE(Type, name) \
  if (auto* node = std::get_if<Type>(&collective)) return f(*node);
#include "lowering/collectives.def"
#undef COLLECTIVE
  std::abort();  // A Collective always holds a node: the variant's first type is never stored.
}

Op OpFor(const Collective& collective);

// "all_gather(dim=0, groups=[[0,1],[2,3]])"; without the groups for comparing ranks, which need
// agree on their own group only.
std::string ToString(const Collective& collective, bool with_groups = true);
// The groups of a collective; the world for those that have none.
Groups GroupsOf(const Collective& collective);

}  // namespace xla_cc
