// gloo between the ranks of a group.
#pragma once

#include <atomic>
#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "torch_xla_cc/distributed/transport.h"
#include "torch_xla_cc/gil.h"

namespace xla_cc {

// How many collectives gloo has been given that have not ended, of one group. What failed in gloo
// has ended too.
using InGlooCount = std::shared_ptr<std::atomic<int>>;

// Messages keep it as long as somebody keeps them.
class GlooGroup {
 public:
  GlooGroup(c10::intrusive_ptr<c10d::Backend> gloo, std::shared_ptr<Health> health)
      : gloo_(std::move(gloo)), health_(std::move(health)) {}
  GlooGroup(const GlooGroup&) = delete;
  GlooGroup& operator=(const GlooGroup&) = delete;

  // gloo's destructor waits for what it has been given, also if that will not end: then this
  // group's threads and connections are left to the process.
  ~GlooGroup() {
    try {
      health_->ThrowIfBroken();
    } catch (const std::exception&) {
      if (*count_ > 0) (void)gloo_.release();
    }
    // What gloo runs last may want the interpreter lock.
    Unlocked([this] { gloo_.reset(); });
  }

  c10d::Backend& group() const { return *gloo_; }
  const InGlooCount& count() const { return count_; }

 private:
  c10::intrusive_ptr<c10d::Backend> gloo_;
  const std::shared_ptr<Health> health_;
  const InGlooCount count_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace xla_cc
