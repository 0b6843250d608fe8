// Waiting without the interpreter lock, which others may need to come.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace xla_cc {

template <class Function>
auto Unlocked(const Function& wait) {
  if (!PyGILState_Check()) return wait();
  const py::gil_scoped_release unlocked;
  return wait();
}

}  // namespace xla_cc
