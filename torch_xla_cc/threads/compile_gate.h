// A gate between the compiling of a program and its run.
//
// torch_xla compiles a graph, takes the lock of its device, and runs it, in one call. XLA:CPU
// aborts the process when a rank is 15 s late in a collective, and a peer's compile may take
// longer. So where a compile is to be expected, a rank's device is locked here before that call:
// the compiled program waits at the lock until those of its peers are compiled too.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace xla_cc {

class CompileGate {
 public:
  // Whether this system can tell that a program is at the gate.
  static bool Works();

  // Locks the device of a rank, once what it was given before is done. Raises what that raised.
  explicit CompileGate(int64_t rank);
  ~CompileGate();

  // Calls `run`, which hands over a graph of that rank, on a thread of its own. Returns when the
  // program is compiled and waits at the lock, or when `run` has returned, since it failed.
  void Compile(std::function<void()> run);
  // Whether the program waits at the lock.
  bool Waits() const;
  // Lets the program run; or turns it away, if not `go`: `run` then fails. Returns when `run` has.
  void Open(bool go);

 private:
  struct Lock;
  std::unique_ptr<Lock> lock_;
};

// A number that grows with each tensor that is made, on any XLA device.
int64_t TensorsMade();

}  // namespace xla_cc
