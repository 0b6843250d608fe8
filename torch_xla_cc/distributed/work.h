// Handles of calls.
#pragma once

#include <c10/util/ScopeExit.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "torch_xla_cc/distributed/transport.h"

namespace xla_cc {

using Future = c10::intrusive_ptr<c10::ivalue::Future>;
Future FutureOfTensors();
// One that has what `work` results in; waits for it.
Future FutureOf(c10d::Work& work);

// A call whose outputs hold their results for all who read them next: in a lazy graph it is done,
// as far as the caller can tell, when its nodes are attached.
class IssuedWork final : public c10d::Work {
 public:
  explicit IssuedWork(Tensors outputs, int source = -1);
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
  void synchronize() override {}
  int sourceRank() const override { return source_; }
  Tensors result() override { return outputs_; }
  Future getFuture() override { return FutureOf(*this); }

 private:
  Tensors outputs_;
  int source_;
};

inline WorkPtr Issued(Tensors outputs, int source = -1) {
  return c10::make_intrusive<IssuedWork>(std::move(outputs), source);
}

// A receive: the output gets what was sent when the caller waits, or asks whether it has come. Of
// several threads that do, one takes it.
class ReceiveWork final : public c10d::Work {
 public:
  // `take` puts what has come into the output, and says who sent it; it waits for it.
  ReceiveWork(std::function<bool()> has_come, std::function<int(Timeout)> take, at::Tensor output);
  bool isCompleted() override;
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  int sourceRank() const override { return source_; }
  Tensors result() override { return {output_}; }
  Future getFuture() override { return FutureOf(*this); }

 private:
  void Take(std::chrono::milliseconds timeout);
  // A signal handler, or a __del__, may come to ask for it on the thread that takes it.
  bool IsTaking() const { return taker_ == std::this_thread::get_id(); }
  auto Begin() {
    taker_ = std::this_thread::get_id();
    return c10::make_scope_exit([this] { taker_ = std::thread::id(); });
  }

  std::timed_mutex turn_;
  std::atomic<std::thread::id> taker_{};
  std::function<bool()> has_come_;
  std::function<int(Timeout)> take_;  // none once it is done
  std::exception_ptr failed_;         // what it threw: it is not called again
  at::Tensor output_;
  int source_ = -1;
};

// Several calls, as one.
class CoalescedWork final : public c10d::Work {
 public:
  explicit CoalescedWork(std::vector<WorkPtr> works)
      : Work(-1, c10d::OpType::COALESCED), works_(std::move(works)) {}
  bool isCompleted() override;
  bool isSuccess() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  std::exception_ptr exception() const override;
  Tensors result() override;
  Future getFuture() override;

 private:
  std::vector<WorkPtr> works_;
};

}  // namespace xla_cc
