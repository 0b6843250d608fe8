// Lists of tensors that are parts of one buffer: there the buffer itself is read and written.
#pragma once

#include "torch_xla_cc/distributed/tensors.h"

namespace xla_cc {

// The part of a buffer that the tensors fill, one behind the other, in order; undefined if they do
// not. Where the CallMode wants one_buffer, BadValue (D7), which names the first that is off.
at::Tensor BufferOf(const char* op, const char* argument, const Tensors& list);

// (D8) the input is apart from the outputs, or is the one of this rank.
void RequireApart(const char* op, const at::Tensor& input, const Tensors& outputs, int rank);

// (D9) each element of an output is one of its buffer.
void RequireOwnElements(const char* op, const char* argument, const Tensors& outputs);
// (D1) and (D9).
void RequireWritable(const char* op, const char* argument, const Tensors& outputs);

}  // namespace xla_cc
