#include "lowering/capability/table.h"

#include <string>

#include "lowering/capability/bits.h"

namespace xla_cc {
namespace {

constexpr int kParameter = -1;
#define COLLECTIVE(Type, name) constexpr int k##Type = static_cast<int>(Op::k##Type);
#include "lowering/collectives.def"
#undef COLLECTIVE

#define T(type) Bit(hlo::ElementType::k##type)
#define K(kind) Bit(ReduceKind::k##kind)
#define F(form) Bit(Form::k##form)
#define C(count) Bit(Count::k##count)
constexpr std::string_view kEveryDevice = "*";
constexpr std::string_view kPartitions = "spmd";  // on every device, in SPMD mode

#define ROW(device, op, types, kinds, forms, counts, least_ranks, why) \
  {device, op, types, kinds, forms, counts, least_ranks, LimitOf::kCompiler, why},
#define ROW_OF_THREADS(device, op, types, kinds, forms, counts, least_ranks, why) \
  {device, op, types, kinds, forms, counts, least_ranks, LimitOf::kThreads, why},
constexpr Row kTable[] = {
#include "lowering/capability/measured.inc"
// What is known without measuring.
#include "lowering/capability/fixed.inc"
};
#undef ROW_OF_THREADS
#undef ROW
#undef C
#undef F
#undef K
#undef T

bool IsMeasured(const std::string& device) {
  for (const Row& row : kTable) {
    if (device == row.device) return true;
  }
  return false;
}

// Groups that are as large as a world are treated as one by a compiler.
bool Holds(const Row& row, const Query& query) {
  if (row.forms & Bit(query.form) && query.target.world_size >= row.least_ranks) return true;
  return row.forms & Bit(Form::kWorld) && row.least_ranks > 0 && query.form != Form::kChain &&
         query.form != Form::kRing && query.group_size >= row.least_ranks;
}

const Row* Find(const Query& query, int op, Count count) {
  // A device whose generation was not measured is held for the least of its kind.
  const std::string& device = query.target.device;
  const std::string_view kind = IsMeasured(device) ? "" : KindOf(device);
  for (const Row& row : kTable) {
    if (query.target.partitioned && row.limit == LimitOf::kThreads) continue;
    if (row.op == op && (row.types & Bit(query.type)) && (row.counts & Bit(count)) &&
        (!query.reduce || (row.kinds & Bit(*query.reduce))) && Holds(row, query) &&
        (row.device == kEveryDevice || (row.device == kPartitions && query.target.partitioned) ||
         (kind.empty() ? device == row.device : kind == KindOf(row.device)))) {
      return &row;
    }
  }
  return nullptr;
}

}  // namespace

const Row* FindRow(const Query& query, Count count) {
  return Find(query, static_cast<int>(query.op), count);
}

const Row* FindRowOfParameter(const Query& query) { return Find(query, kParameter, Count::kOne); }

}  // namespace xla_cc
