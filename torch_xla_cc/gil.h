// Waiting without the interpreter lock, which others may need to come.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace xla_cc {

// Whether this thread has the lock. PyGILState_Check alone says yes to all threads at the end of
// the interpreter, where those of the host transport may still run.
inline bool HasLock() { return PyGILState_GetThisThreadState() != nullptr && PyGILState_Check(); }

template <class Function>
auto Unlocked(const Function& wait) {
  if (!HasLock()) return wait();
  const py::gil_scoped_release unlocked;
  return wait();
}

}  // namespace xla_cc
