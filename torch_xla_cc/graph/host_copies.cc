#include "torch_xla_cc/graph/host_copies.h"

#include "torch_xla_cc/call_site.h"
#include "torch_xla_cc/dtypes.h"
#include "torch_xla_cc/graph/fallback_policy.h"
#include "torch_xla_cc/graph/records.h"
#include "torch_xla_cc/graph/target.h"

namespace xla_cc {

void ThroughHost(Op op, int64_t channel, const at::Tensor& tensor) {
  const std::string name = Name(op);
  const hlo::Shape shape = ShapeOf(name.c_str(), 0, tensor);
  Lowered lowered;
  if (op == Op::kRecv) {
    lowered.collective = Recv{channel, {}};
  } else {
    lowered.collective = Send{channel, {}};
  }
  lowered.name = name + "(channel=" + std::to_string(channel) + ")";
  lowered.results = {shape};
  lowered.rule = Rule::kHost;
  lowered.why =
      "a channel that names no ranks is outside of the graph: its tensors are copied "
      "through the memory of the host. Name the ranks: Channel(pairs=[(source, target)])";
  // In the graph only the receiver has a result; here there is a copy on the host besides.
  const int64_t result = op == Op::kRecv ? shape.Bytes() : 0;
  lowered.cost = {shape.Bytes(), result + shape.Bytes(), 0};
  lowered.native_cost = {shape.Bytes(), result, 1};
  const auto plan = std::make_shared<Plan>(std::move(lowered), CurrentTarget());
  const Site site = CurrentSite();
  OnFallback(*plan, {shape}, site);
  Note({tensor.device().index(), plan, {shape}, site});
}

}  // namespace xla_cc
