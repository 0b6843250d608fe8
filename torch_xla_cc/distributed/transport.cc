#include "torch_xla_cc/distributed/transport.h"

#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <cctype>

#include "lowering/hlo/shape.h"
#include "torch_xla_cc/arguments.h"
#include "torch_xla_cc/distributed/recorder.h"
#include "torch_xla_cc/policy.h"

namespace xla_cc {

// As in Python.
std::string DtypeText(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kHalf:
      return "float16";
    case at::kByte:
      return "uint8";
    case at::kChar:
      return "int8";
    case at::kShort:
      return "int16";
    case at::kInt:
      return "int32";
    case at::kLong:
      return "int64";
    case at::kComplexFloat:
      return "complex64";
    case at::kComplexDouble:
      return "complex128";
    default: {  // the same in lower case
      std::string name = c10::toString(x.scalar_type());
      for (char& letter : name) letter = static_cast<char>(std::tolower(letter));
      return name;
    }
  }
}

std::string ShapeText(const at::Tensor& x) {
  return DtypeText(x) + "[" + hlo::ToString(x.sizes().vec()) + "]";
}

bool AllAlike(const Tensors& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor& x) { return x.sizes() == tensors[0].sizes(); });
}

Tensors Flat(const std::vector<Tensors>& lists) {
  Tensors all;
  for (const Tensors& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

std::vector<int64_t> Elements(const Tensors& tensors) {
  std::vector<int64_t> elements;
  for (const at::Tensor& x : tensors) elements.push_back(x.numel());
  return elements;
}

void ThroughHost(GroupCall& call, const std::string& why) {
  call.through_host = true;
  const py::gil_scoped_acquire locked;
  OnHost(call.what, why, call.site);
}

bool& Capturing() {
  thread_local bool capturing = false;
  return capturing;
}

void Health::Break(const std::exception_ptr& error) {
  {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    error_ = error;
  }
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& first) {
    Recorder::Get().Dump(rank_, first.what());
  }
}

void Health::ThrowIfBroken() {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    error = error_;
  }
  if (!error) return;
  const std::string intro = "the group cannot be used any more, since a call of it has failed: ";
  try {
    std::rethrow_exception(error);
  } catch (const CollectiveMismatch& first) {
    throw CollectiveMismatch(intro + first.what());
  } catch (const CollectiveTimeout& first) {
    throw CollectiveTimeout(intro + first.what());
  } catch (const std::exception& first) {
    throw RanksDisagree(intro + first.what());
  }
}

}  // namespace xla_cc
