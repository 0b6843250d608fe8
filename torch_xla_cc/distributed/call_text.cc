#include "torch_xla_cc/distributed/call_text.h"

#include <algorithm>

#include "torch_xla_cc/dtypes.h"
#include "torch_xla_cc/errors.h"

namespace xla_cc {

std::string Text(const Tensors& xs) {
  std::string text;
  for (size_t i = 0; i < xs.size();) {
    const std::string shape = ShapeText(xs[i]);
    size_t end = i + 1;
    while (end < xs.size() && ShapeText(xs[end]) == shape) ++end;
    text += (i > 0 ? ", " : "") + shape;
    if (end - i > 1) text += " x " + std::to_string(end - i);
    i = end;
  }
  return text;
}

std::string Text(const std::vector<Tensors>& lists) {
  std::string text;
  for (const Tensors& list : lists) text += (text.empty() ? "[" : ", [") + Text(list) + "]";
  return text;
}

std::string Unlike(const char* word, const Tensors& xs, const Tensors& usual) {
  const auto same = [](const at::Tensor& x, const at::Tensor& y) { return x.sizes() == y.sizes(); };
  return std::equal(xs.begin(), xs.end(), usual.begin(), same) ? "" : word + Text(xs);
}

std::string UnlikeWhole(const char* word, const Tensors& wholes, const Tensors& parts) {
  const auto usual = [](const at::Tensor& whole, const at::Tensor& part) {
    return part.dim() == 0
               ? whole.dim() == 1
               : whole.dim() == part.dim() && whole.sizes().slice(1) == part.sizes().slice(1);
  };
  return std::equal(wholes.begin(), wholes.end(), parts.begin(), usual) ? "" : word + Text(wholes);
}

std::string RowText(const at::Tensor& x) {
  return DtypeText(x) + "[" + hlo::ToString(x.sizes().slice(1).vec()) + "]";
}

}  // namespace xla_cc
