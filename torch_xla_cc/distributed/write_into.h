// Results into the tensors that the caller gave.
#pragma once

#include <ATen/core/Tensor.h>

namespace xla_cc {

// `output`, and what it is a view of, see `value` from here on. Nothing is copied, but into a part
// of another tensor, and if it has as many elements in another shape. Not as an operation that
// autograd knows of.
void Write(const at::Tensor& output, const at::Tensor& value);

}  // namespace xla_cc
