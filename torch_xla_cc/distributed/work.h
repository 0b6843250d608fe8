// The handle of a call whose outputs hold their results for all who read them next.
#pragma once

#include "torch_xla_cc/distributed/transport.h"

namespace xla_cc {

// In a lazy graph a call is done as far as the caller can tell when its nodes are attached.
class IssuedWork final : public c10d::Work {
 public:
  explicit IssuedWork(Tensors outputs, int source = -1);
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
  void synchronize() override {}
  int sourceRank() const override { return source_; }
  Tensors result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  Tensors outputs_;
  int source_;
};

inline WorkPtr Issued(Tensors outputs, int source = -1) {
  return c10::make_intrusive<IssuedWork>(std::move(outputs), source);
}

}  // namespace xla_cc
