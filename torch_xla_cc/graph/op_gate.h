// Holds up what other threads do with XLA tensors, for as long as a gate is closed.
//
// torch_xla takes a thread's graph for granted while it adds to it: another must not run it then.
#pragma once

#include <chrono>

namespace xla_cc {

class OpGate {
 public:
  // Closes it, for all threads but this one. There is one at a time.
  OpGate();
  ~OpGate();
  OpGate(const OpGate&) = delete;
  OpGate& operator=(const OpGate&) = delete;

  // Whether nothing comes to it for so long. Returns as soon as something does.
  bool IsQuiet(std::chrono::milliseconds time) const;
  // Holds up the main thread too where it runs Python, or comes back to it: what it asks a tensor
  // need be no operator, as its shape is none, which torch_xla cannot tell while it compiles what
  // the tensor is. Holds the interpreter lock.
  static void Park();
  // What is no operator of torch passes here.
  static void Pass();
};

}  // namespace xla_cc
