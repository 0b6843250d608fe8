#include "lowering/rank_slice.h"

#include "lowering/errors.h"
#include "lowering/hlo/builder.h"
#include "lowering/rules/by_rank.h"

namespace xla_cc {

using hlo::Shape;

namespace {

constexpr char kName[] = "rank_slice";

Status Verify(const RankSlice& slice, const Shape& whole, const Target& target) {
  const int64_t rank = static_cast<int64_t>(whole.dims.size());
  if (slice.dim < 0 || slice.dim >= rank) {
    return Refuse({"X1", kName, "dim", std::to_string(slice.dim),
                   "an axis of " + whole.ToString() + ": 0 to " + std::to_string(rank - 1),
                   "Pass one of them"});
  }
  const int64_t most = whole.dims[slice.dim];
  if (slice.size < 0 || slice.size > most) {
    return Refuse({"X2", kName, "size", std::to_string(slice.size),
                   "0 to " + std::to_string(most) + ", which " + whole.ToString() + " has",
                   "Pass one of these"});
  }
  if (static_cast<int64_t>(slice.starts.size()) != target.world_size) {
    return Refuse({"X3", kName, "len(starts)", std::to_string(slice.starts.size()),
                   std::to_string(target.world_size) + ", one for each rank", "Pass as many"});
  }
  // XLA moves a slice that reaches over the end, and takes other elements in silence.
  for (const int64_t start : slice.starts) {
    if (start >= 0 && start <= most - slice.size) continue;
    return Refuse({"X4", kName, "starts", std::to_string(start),
                   "0 to " + std::to_string(most - slice.size) + ": " + std::to_string(slice.size) +
                       " of " + whole.ToString() + " from there",
                   "Pass one of these"});
  }
  constexpr int64_t kMost = INT32_MAX;  // what indices are counted in
  if (most > kMost) {
    return Refuse({"X5", kName, "x.shape[dim]", std::to_string(most),
                   "at most " + std::to_string(kMost), "Reshape it"});
  }
  return Status::Ok();
}

hlo::Computation Begin(hlo::Module* module, const Target& target) {
  return module->Begin("entry",
                       target.partitioned ? hlo::RankIs::kPartition : hlo::RankIs::kReplica);
}

std::string Finished(hlo::Module* module, hlo::Computation* entry, const hlo::Value& result) {
  entry->Return({result});
  module->Finish(*entry);
  return module->Serialize({std::string("xla_cc.") + kName, kName, "", 0});
}

}  // namespace

Result<std::string> LowerRankSlice(const RankSlice& slice, const Shape& whole,
                                   const Target& target) {
  XLA_CC_RETURN_IF_ERROR(Verify(slice, whole, target));
  hlo::Module module;
  hlo::Computation entry = Begin(&module, target);
  const hlo::Value x = entry.Parameter(whole);
  return Finished(&module, &entry, BlockByRank(entry, x, slice.dim, slice.size, slice.starts));
}

Result<std::string> LowerRankSliceGradient(const RankSlice& slice, const Shape& whole,
                                           const Target& target) {
  XLA_CC_RETURN_IF_ERROR(Verify(slice, whole, target));
  Shape part = whole;
  part.dims[slice.dim] = slice.size;
  hlo::Module module;
  hlo::Computation entry = Begin(&module, target);
  const hlo::Value x = entry.Parameter(part);
  return Finished(&module, &entry,
                  WithBlockByRank(entry, entry.Zeros(whole), x, slice.dim, slice.starts));
}

}  // namespace xla_cc
