// Events: something that will have happened, well or badly, and who waits for it.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "pod/failure.h"

namespace xla_cc::pod {

class Occurrence {
 public:
  using Outcome = std::optional<Failure>;  // nothing: all went well
  using Callback = std::function<void(const Outcome&)>;

  static std::shared_ptr<Occurrence> Already(Outcome outcome);

  // Once; what comes later is not heard.
  void Happen(Outcome outcome);
  bool HasHappened() const;
  Outcome Wait() const;
  // Here and now if it has happened; otherwise on a thread that all callbacks share, in their
  // order. It is not the one that reads answers: a callback may wait for another answer.
  void Then(Callback callback);

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool happened_ = false;
  Outcome outcome_;
  std::vector<Callback> callers_;
};

using OccurrencePtr = std::shared_ptr<Occurrence>;

}  // namespace xla_cc::pod
