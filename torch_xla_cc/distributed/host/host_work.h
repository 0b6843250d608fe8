// A collective that gloo carries out, once all ranks of the group have come to it and agree.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "torch_xla_cc/distributed/host/gloo_group.h"
#include "torch_xla_cc/distributed/host/store_check.h"
#include "torch_xla_cc/distributed/transport.h"
#include "torch_xla_cc/distributed/work.h"

namespace xla_cc {

class HostWork final : public c10d::Work {
 public:
  // `start` hands a step to gloo, without the interpreter lock; `finish`, once all steps are done,
  // puts what came of it into the outputs, on whichever thread first asks or is told.
  struct Step {
    std::function<WorkPtr()> start;
    std::function<void()> finish;
  };

  HostWork(CallPtr call, Said said, std::vector<Step> steps, Tensors outputs, StoreCheckPtr check,
           std::shared_ptr<Health> health, InGlooCount in_gloo);

  // Meets the other ranks and starts the steps. In the order of the calls of the group.
  void Start();
  // As wait(), of what nobody needs the pending graph for.
  bool Await(std::chrono::milliseconds timeout);
  // What the ranks said of their calls; after wait().
  const std::vector<Said>& said_by_all() const { return said_by_all_; }

  bool isCompleted() override;
  bool isSuccess() const override { return !exception(); }
  std::exception_ptr exception() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  Tensors result() override { return outputs_; }
  Future getFuture() override;

 private:
  void StepEnded(c10::ivalue::Future& step);
  void OneEnded();
  void Fail(std::exception_ptr error);
  // The outputs see what came.
  void Finish();

  const CallPtr call_;
  const Said said_;
  std::vector<Said> said_by_all_;
  std::vector<Step> steps_;
  const Tensors outputs_;
  const StoreCheckPtr check_;
  const std::shared_ptr<Health> health_;
  const InGlooCount in_gloo_;

  mutable std::mutex state_mutex_;
  std::condition_variable changed_;
  size_t left_;  // steps that have not ended, and Start
  std::exception_ptr failed_;
  Future future_;  // once it was asked for
  std::atomic<bool> asked_ = false;
  std::once_flag finished_;
};

}  // namespace xla_cc
