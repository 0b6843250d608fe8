#include "lowering/rank_slice.h"
#include "torch_xla_cc/call_site.h"
#include "torch_xla_cc/dtypes.h"
#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/graph/bind.h"
#include "torch_xla_cc/graph/planning.h"
#include "torch_xla_cc/graph/records.h"
#include "torch_xla_cc/graph/target.h"

namespace xla_cc {
namespace {

py::dict Describe(const Record& record) {
  py::dict out = Describe(*record.plan);
  std::vector<std::string> operands;
  int64_t bytes = 0;
  for (const hlo::Shape& shape : record.operands) {
    operands.push_back(shape.ToString());
    bytes += shape.Bytes();
  }
  const CallSite site = Resolve(record.site);
  out["rank"] = record.rank;
  out["operands"] = operands;
  out["bytes"] = bytes;
  out["file"] = site.file;
  out["line"] = site.line;
  return out;
}

// Of a tensor like x, which gives the type alone.
py::bytes RankSliceModule(const at::Tensor& x, const std::vector<int64_t>& whole, int64_t dim,
                          int64_t size, const std::vector<int64_t>& starts, bool gradient) {
  const hlo::Shape shape{ShapeOf("rank_slice", 0, x).type, whole};
  const RankSlice slice{dim, size, starts};
  const auto lowered = gradient ? LowerRankSliceGradient(slice, shape, CurrentTarget())
                                : LowerRankSlice(slice, shape, CurrentTarget());
  if (!lowered.ok()) throw BadValue(lowered.status().message());
  return lowered.value();
}

}  // namespace

py::dict Describe(const Plan& plan) {
  const Lowered& lowered = plan.lowered;
  std::vector<std::string> results;
  for (const hlo::Shape& shape : lowered.results) results.push_back(shape.ToString());
  py::dict out;
  out["op"] = Name(OpFor(lowered.collective));
  out["name"] = lowered.name;
  out["target"] = plan.target.name;
  out["world_size"] = plan.target.world_size;
  out["rule"] = Name(lowered.rule);
  out["ways"] = lowered.ways;
  out["why"] = lowered.why;
  out["opcodes"] = lowered.opcodes;
  out["results"] = results;
  out["fingerprint"] = lowered.fingerprint;
  out["wire_bytes"] = lowered.cost.wire_bytes;
  out["memory_bytes"] = lowered.cost.memory_bytes;
  out["native_wire_bytes"] = lowered.native_cost.wire_bytes;
  out["native_memory_bytes"] = lowered.native_cost.memory_bytes;
  out["groups"] = GroupsOf(lowered.collective).Expanded(plan.target.world_size);
  return out;
}

hlo::ElementType TypeOfNumber(int64_t number) {
  const auto type = hlo::ElementTypeFromNumber(number);
  if (!type) throw BadValue("no element type has the number " + std::to_string(number));
  return *type;
}

void BindLowering(py::module_& m) {
  m.def("rank_slice_module", &RankSliceModule);
  m.def("set_thread_target", [](const std::optional<std::string>& name, int64_t world_size) {
    if (!name) return SetThreadTarget(std::nullopt);
    Result<Target> target = ParseTarget(*name, world_size);
    if (!target.ok()) throw BadValue(target.status().message());
    SetThreadTarget(target.value());
  });
  m.def("thread_target", []() -> std::optional<std::pair<std::string, int64_t>> {
    const auto& target = ThreadTarget();
    if (!target) return std::nullopt;
    return std::pair{target->name, target->world_size};
  });
  m.def("current_target", [] {
    const Target& target = CurrentTarget();
    return std::pair{target.name, target.world_size};
  });
  m.def("forget_running_target", &ForgetRunningTarget);
  m.def("set_debug", &SetDebug);
  m.def("debug", &Debug);
  m.def("set_recording", &SetRecording);
  m.def("take_records", [] {
    std::vector<py::dict> out;
    for (const Record& record : TakeRecords()) out.push_back(Describe(record));
    return out;
  });
  m.def("cache_counts", [] {
    const PlanCache::Counts counts = PlanCache::Get().counts();
    py::dict out;
    out["hits"] = counts.hits;
    out["misses"] = counts.misses;
    out["size"] = counts.size;
    out["capacity"] = counts.capacity;
    return out;
  });
  m.def("set_cache_capacity", [](size_t capacity) {
    if (capacity < 1) throw BadValue("set_cache_capacity: capacity must be at least 1");
    PlanCache::Get().SetCapacity(capacity);
  });
  m.def("clear_cache", [] { PlanCache::Get().Clear(); });
}

}  // namespace xla_cc
