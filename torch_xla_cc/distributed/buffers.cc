#include "torch_xla_cc/distributed/buffers.h"

#include <ATen/ATen.h>
#include <ATen/FunctionalTensorWrapper.h>

#include <optional>

#include "lowering/errors.h"
#include "torch_xla_cc/distributed/call_mode.h"
#include "torch_xla_cc/distributed/verify.h"
#include "torch_xla_cc/dtypes.h"
#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/python_side.h"

namespace xla_cc {
namespace {

// Where a tensor lies in the buffer that it is a view of, in elements.
struct Place {
  at::Tensor buffer;
  int64_t offset = 0;
};

// None if it is not in one piece.
std::optional<Place> PlaceOf(const at::Tensor& x) {
  if (!x.is_view() || !at::functionalization::impl::isFunctionalTensor(x)) return Place{x, 0};
  const py::gil_scoped_acquire locked;
  const py::object offset = CallPython(Python().place_of_view, x);
  if (offset.is_none()) return std::nullopt;
  return Place{at::Tensor(x._base()), offset.cast<int64_t>()};
}

std::string Text(const char* argument, size_t i) {
  return std::string(argument) + "[" + std::to_string(i) + "]";
}

}  // namespace

at::Tensor BufferOf(const char* op, const char* argument, const Tensors& list) {
  const auto off = [&](size_t i, const std::string& value, const std::string& required) {
    if (!CallMode::OfThread().one_buffer) return at::Tensor();
    throw BadValue(Refuse({"D7", op, Text(argument, i), value, required,
                           "Make the list of one buffer: buffer.chunk(size), or leave "
                           "one_buffer() out"})
                       .message());
  };
  const std::optional<Place> first = PlaceOf(list[0]);
  if (list.size() > 1 && !list[0].is_view()) {
    return off(0, ShapeText(list[0]) + ", a tensor of its own", "a view of the list's buffer");
  }
  int64_t end = first ? first->offset : 0;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::optional<Place> place = PlaceOf(list[i]);
    if (!place || !first) {
      return off(i, ShapeText(list[i]), "one piece of its buffer");
    }
    if (!place->buffer.is_same(first->buffer)) {
      return off(i, ShapeText(list[i]) + ", of another buffer",
                 "a view of the buffer of " + Text(argument, 0));
    }
    if (place->offset != end) {
      return off(i, "at element " + std::to_string(place->offset) + " of its buffer",
                 "at element " + std::to_string(end) + ", behind the tensor before it");
    }
    end += list[i].numel();
  }
  if (first->offset == 0 && end == first->buffer.numel()) return first->buffer;
  return first->buffer.reshape({-1}).narrow(0, first->offset, end - first->offset);
}

void RequireOwnElements(const char* op, const char* argument, const Tensors& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].is_view() || outputs[i].numel() < 2) continue;
    const py::gil_scoped_acquire locked;
    if (!CallPython(Python().repeats, outputs[i]).cast<bool>()) continue;
    throw BadValue(Refuse({"D9", op, Text(argument, i),
                           ShapeText(outputs[i]) + ", of which several elements are one of the "
                                                   "tensor that it is a view of",
                           "a tensor with a place for each element",
                           "Pass a tensor of its own, and copy from it"})
                       .message());
  }
}

void RequireWritable(const char* op, const char* argument, const Tensors& outputs) {
  RequireOurs(op, argument, outputs);
  RequireOwnElements(op, argument, outputs);
}

void RequireApart(const char* op, const at::Tensor& input, const Tensors& outputs, int rank) {
  if (input.numel() == 0 || !input.is_view()) return;
  const std::optional<Place> in = PlaceOf(input);
  for (size_t i = 0; i < outputs.size() && in; ++i) {
    const std::optional<Place> out = PlaceOf(outputs[i]);
    if (!out || !out->buffer.is_same(in->buffer)) continue;
    const bool apart =
        in->offset + input.numel() <= out->offset || out->offset + outputs[i].numel() <= in->offset;
    if (apart || (static_cast<int>(i) == rank && in->offset == out->offset)) continue;
    throw BadValue(
        Refuse({"D8", op, "input",
                "at element " + std::to_string(in->offset) + " of the buffer of " +
                    Text("output", i) + ", which begins at " + std::to_string(out->offset),
                "apart from the outputs, or the one of this rank, output[" + std::to_string(rank) +
                    "]",
                "Pass a copy of it: input.clone()"})
            .message());
  }
}

}  // namespace xla_cc
