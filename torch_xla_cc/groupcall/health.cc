#include "torch_xla_cc/groupcall/health.h"

#include <string>

#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/groupcall/flight_recorder.h"

namespace xla_cc {

void Health::Break(const std::exception_ptr& error) {
  {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    error_ = error;
  }
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& first) {
    Recorder::Get().Dump(rank_, first.what());
  }
}

void Health::ThrowIfBroken() {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    error = error_;
  }
  if (!error) return;
  const std::string intro = "the group cannot be used any more, since a call of it has failed: ";
  try {
    std::rethrow_exception(error);
  } catch (const CollectiveMismatch& first) {
    throw CollectiveMismatch(intro + first.what());
  } catch (const CollectiveTimeout& first) {
    throw CollectiveTimeout(intro + first.what());
  } catch (const std::exception& first) {
    throw RanksDisagree(intro + first.what());
  }
}

}  // namespace xla_cc
