// Element types and shapes of torch, as XLA's, and in words.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "lowering/hlo/shape.h"

namespace xla_cc {

// The shape of a tensor, refused with a reason (BadValue) if it is none that XLA can hold.
hlo::Shape ShapeOf(const char* op, size_t index, const at::Tensor& tensor);

std::string DtypeText(const at::Tensor& x);  // float32, as in Python
std::string ShapeText(const at::Tensor& x);  // float32[2,3]

}  // namespace xla_cc
