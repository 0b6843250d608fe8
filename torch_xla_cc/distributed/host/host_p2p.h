// Point to point between processes, by gloo. A message is a header, of one size, and the data: what
// comes is compared with what is expected before gloo, which ends the process on a wrong size, can
// see it. The header also names the tag of the data, which no other message has; so receives may be
// waited for in any order.
#pragma once

#include <atomic>
#include <mutex>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "torch_xla_cc/distributed/host/background_task.h"
#include "torch_xla_cc/distributed/host/gloo_group.h"
#include "torch_xla_cc/distributed/host/mail.h"
#include "torch_xla_cc/distributed/host/store_check.h"
#include "torch_xla_cc/distributed/transport.h"
#include "torch_xla_cc/distributed/work.h"

namespace xla_cc {

// What a rank sends to itself, which gloo does not carry.
struct Parcel {
  at::Tensor header;
  at::Tensor bytes;
};
using OwnMail = Mail<Parcel>;

// What both ends have in common.
struct PointToPoint {
  RankGroup group;
  std::shared_ptr<GlooGroup> gloo;
  StoreCheckPtr check;
  std::shared_ptr<Health> health;
  std::shared_ptr<OwnMail> own_mail;
  CallPtr call;
  Said said;
  int peer = kAnySource;
  int tag = 0;

  bool to_itself() const { return peer == group.rank; }
};

class HostSend final : public c10d::Work {
 public:
  // `number` is that of the message among those to this peer. `bytes` is kept until it is sent.
  HostSend(PointToPoint ends, const at::Tensor& x, at::Tensor bytes, uint32_t number);
  // gloo does not tell before somebody waits: who asks starts a thread that does.
  bool isCompleted() override;
  bool done() const { return done_; }
  bool isSuccess() const override { return done_; }
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  Tensors result() override { return {x_}; }
  Future getFuture() override { return FutureOf(*this); }

 private:
  void Await(Timeout limit);

  PointToPoint ends_;
  at::Tensor x_;
  std::vector<WorkPtr> parts_;
  std::exception_ptr failed_;  // like these, of who has await_mutex_
  std::timed_mutex await_mutex_;
  std::atomic<bool> done_{false};
  std::atomic<bool> asked_{false};
  BackgroundTask watch_;
};

class HostReceive final : public c10d::Work {
 public:
  HostReceive(PointToPoint ends, at::Tensor x);
  // Once, when it is made. gloo cannot take back a receive: it is kept until something has come.
  void Begin();
  bool isCompleted() override;
  bool isSuccess() const override { return done_; }
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  int sourceRank() const override { return source_; }
  Tensors result() override { return {x_}; }
  Future getFuture() override { return FutureOf(*this); }

 private:
  bool HasCome(Timeout limit);
  // Waits for the message, and has gloo put it in the host's memory.
  void Take();

  PointToPoint ends_;
  at::Tensor x_;
  at::Tensor like_;  // its shape and dtype, for the other thread
  at::Tensor header_;
  at::Tensor value_;
  WorkPtr header_work_;
  uint64_t own_number_ = 0;
  int source_ = -1;
  std::atomic<bool> done_{false};
  std::atomic<bool> asked_{false};

  // What is sent must be taken whatever this rank waits for meanwhile: its peer may wait for that
  // before it goes on. So each receive has a thread.
  BackgroundTask taking_;
};

}  // namespace xla_cc
