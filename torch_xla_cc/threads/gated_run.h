// A function on a thread of its own, and whether it has come to a lock that another thread holds.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>

namespace xla_cc {

class GatedRun {
 public:
  // Whether this system tells in what memory a thread waits.
  static bool Works();

  GatedRun() = default;
  GatedRun(const GatedRun&) = delete;
  GatedRun& operator=(const GatedRun&) = delete;
  ~GatedRun() { Join(); }

  // Once. Returns when `run` waits in the memory from `begin` to before `end`, or has returned.
  void Start(std::function<void()> run, uintptr_t begin, uintptr_t end);
  // Whether it was seen to wait there.
  bool waits() const { return waits_; }
  // Returns when `run` has.
  void Join();

 private:
  std::thread runner_;
  bool waits_ = false;
};

}  // namespace xla_cc
