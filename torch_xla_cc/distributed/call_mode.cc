#include "torch_xla_cc/distributed/call_mode.h"

#include <vector>

namespace xla_cc {
namespace {

// The scopes of this thread, as they began; those that have ended on another are still in it.
thread_local std::vector<std::shared_ptr<CallModeScope::Entry>> scopes;

void Change(const std::optional<bool>& change, bool& value) { value = change.value_or(value); }

}  // namespace

CallMode CallMode::OfThread() {
  CallMode mode;
  for (const auto& scope : scopes) {
    if (scope->ended) continue;
    Change(scope->change.in_graph, mode.in_graph);
    Change(scope->change.waits_at_once, mode.waits_at_once);
    Change(scope->change.captures, mode.captures);
    Change(scope->change.one_buffer, mode.one_buffer);
    Change(scope->change.messages, mode.messages);
  }
  return mode;
}

CallModeScope::CallModeScope(const CallModeChange& change) : entry_(new Entry{change}) {
  while (!scopes.empty() && scopes.back()->ended) scopes.pop_back();
  scopes.push_back(entry_);
}

CallModeScope::~CallModeScope() {
  entry_->ended = true;
  while (!scopes.empty() && scopes.back()->ended) scopes.pop_back();  // if it was of this thread
}

}  // namespace xla_cc
