#include "torch_xla_cc/distributed/profiler_events.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/record_function.h>

namespace xla_cc {
namespace {

struct Event {
  explicit Event(const char* op)
      : name(std::string("xla_cc:") + op), record(at::RecordScope::USER_SCOPE) {}
  const std::string name;  // the record keeps no copy
  at::RecordFunction record;
};

}  // namespace

std::function<void()> BeginEvent(const char* op, const Tensors& inputs) {
  if (!at::hasCallbacks()) return {};
  const auto event = std::make_shared<Event>(op);
  if (!event->record.isActive()) return {};
  event->record._setAsync();
  const std::vector<c10::IValue> values(inputs.begin(), inputs.end());
  event->record.before(event->name, &values);
  return at::wrapPropagateTLSState([event] { event->record.end(); });
}

}  // namespace xla_cc
