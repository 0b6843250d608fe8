#include "torch_xla_cc/groupcall/group_call.h"

#include <algorithm>
#include <utility>

namespace xla_cc {

void GroupCall::End(State end) {
  if (end_event) std::exchange(end_event, nullptr)();
  ended_us = NowUs();
  state = end;
}

const char* StateName(GroupCall::State state) {
  constexpr const char* kNames[] = {"issued", "running", "done", "failed"};
  return kNames[static_cast<size_t>(state)];
}

Timeout Bounded(Timeout timeout) {
  if (timeout.count() < 0) return timeout < -kLongest ? kLongest : Timeout(1);
  return std::min(timeout, kLongest);
}

int64_t NowUs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

std::string Milliseconds(Timeout timeout) { return std::to_string(timeout.count()) + " ms"; }

Said SaidWithoutSite(const GroupCall& call) {
  return {call.what, call.sent, call.received, call.ends, ""};
}

Said SaidOf(const GroupCall& call) {
  Said said = SaidWithoutSite(call);
  said.site = Text(call.site);
  return said;
}

}  // namespace xla_cc
