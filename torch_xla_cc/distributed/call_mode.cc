#include "torch_xla_cc/distributed/call_mode.h"

namespace xla_cc {
namespace {

thread_local CallMode of_thread;

}  // namespace

const CallMode& CallMode::OfThread() { return of_thread; }

CallModeScope::CallModeScope(CallMode mode) : before_(of_thread) { of_thread = mode; }
CallModeScope::~CallModeScope() { of_thread = before_; }

}  // namespace xla_cc
