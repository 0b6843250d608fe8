// A gate between the compiling of a program and its run.
//
// torch_xla compiles a graph, takes the lock of its device, and runs it, in one call. XLA:CPU
// aborts the process when a rank is 15 s late in a collective, and a peer's compile may take
// longer. So where a compile is to be expected, a rank's device is locked here before that call:
// the compiled program waits at the lock until those of its peers are compiled too.
#pragma once

#include <torch/csrc/lazy/core/util.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace xla_cc {

class Gate {
 public:
  // Whether this system can tell that a program is at the gate.
  static bool Works();

  // Locks the device of a rank, once what it was given before is done. Raises what that raised.
  explicit Gate(int64_t rank);
  ~Gate();

  // Calls `run`, which hands over a graph of that rank, on a thread of its own. Returns when the
  // program is compiled and waits at the lock, or when `run` has returned, since it failed.
  void Compile(std::function<void()> run);
  // Whether the program waits at the lock.
  bool Waits() const { return waits_; }
  // Lets the program run; or turns it away, if not `go`: `run` then fails. Returns when `run` has.
  void Open(bool go);

 private:
  bool IsAtLock(int64_t thread) const;

  std::vector<torch::lazy::ExceptionCleanup> lock_;
  uintptr_t lock_begin_ = 0;  // where the lock is in memory
  uintptr_t lock_end_ = 0;
  bool waits_ = false;  // the program, at the lock
  std::thread runner_;
};

// A number that grows with each tensor that is made, on any XLA device.
int64_t TensorsMade();

}  // namespace xla_cc
