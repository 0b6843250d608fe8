#include "torch_xla_cc/distributed/verify.h"

#include "lowering/errors.h"
#include "torch_xla_cc/distributed/buffers.h"
#include "torch_xla_cc/distributed/reductions.h"
#include "torch_xla_cc/dtypes.h"
#include "torch_xla_cc/errors.h"

namespace xla_cc {

void Wrong(const std::string& label, const std::string& op, const std::string& argument,
           const std::string& value, const std::string& required, const std::string& remedy) {
  throw BadValue(Refuse({label, op, argument, value, required, remedy}).message());
}

namespace {

bool IsOurs(const at::Tensor& x) {
  return x.defined() && x.device().type() == at::kXLA && x.layout() == at::kStrided;
}

}  // namespace

void RequireOurs(const char* op, const std::string& argument, const at::Tensor& x) {
  if (IsOurs(x)) return;
  Wrong("D1", op, argument, x.defined() ? ShapeText(x) + " on " + x.device().str() : "undefined",
        "a dense tensor on an XLA device", "Move it: tensor.to(torch_xla.device())");
}

void RequireOurs(const char* op, const std::string& argument, const Tensors& xs) {
  if (xs.empty()) Wrong("D1", op, argument, "[]", "a list of tensors", "Pass at least one");
  for (size_t i = 0; i < xs.size(); ++i) {
    if (!IsOurs(xs[i])) RequireOurs(op, argument + "[" + std::to_string(i) + "]", xs[i]);
  }
}

void RequireType(const char* op, const std::string& argument, const at::Tensor& x,
                 const at::Tensor& like) {
  if (x.scalar_type() == like.scalar_type()) return;
  Wrong("D2", op, argument, ShapeText(x), "of the dtype of the input, " + DtypeText(like),
        "Allocate it with that dtype");
}

void RequireCount(const char* op, const std::string& argument, size_t count, size_t wanted,
                  const char* of) {
  if (count == wanted) return;
  Wrong("D3", op, argument, "of length " + std::to_string(count),
        "of length " + std::to_string(wanted) + ", one for each " + of, "Pass as many");
}

void RequireElements(const char* op, const std::string& argument, const at::Tensor& x,
                     int64_t elements, const std::string& why) {
  if (x.numel() == elements) return;
  Wrong("D4", op, argument, ShapeText(x), "of " + std::to_string(elements) + " elements, " + why,
        "Allocate it with that size");
}

void RequireRank(const char* op, const std::string& argument, int64_t rank, int size) {
  if (rank >= 0 && rank < size) return;
  Wrong("D5", op, argument, std::to_string(rank),
        "a rank of the group, 0 to " + std::to_string(size - 1), "Name one of them");
}

void RequireTag(const char* op, int tag) {
  if (tag >= 0 && tag <= kLargestTag) return;
  Wrong("D5", op, "tag", std::to_string(tag), "0 to " + std::to_string(kLargestTag),
        "Choose another");
}

void RequireSplits(const char* op, const std::string& argument, const std::vector<int64_t>& splits,
                   const at::Tensor& x, int size) {
  const int64_t rows = x.dim() == 0 ? 1 : x.size(0);
  if (splits.empty()) {
    if (x.dim() > 0 && rows % size == 0) return;
    Wrong("D6", op, argument, ShapeText(x),
          "of a dimension 0 that divides by the " + std::to_string(size) + " ranks of the group",
          "Say how it is cut: split sizes");
  }
  RequireCount(op, argument + " splits", splits.size(), size, kRank);
  int64_t sum = 0;
  for (int64_t split : splits) {
    if (split < 0) Wrong("D6", op, argument + " splits", std::to_string(split), "0 or more", "");
    sum += split;
  }
  if (sum == rows && x.dim() > 0) return;
  Wrong("D6", op, argument + " splits", "a sum of " + std::to_string(sum),
        std::to_string(rows) + ", the rows of " + ShapeText(x), "Cut all of it");
}

void RequireReduction(const char* op, const Tensors& xs, const c10d::ReduceOp& kind) {
  const Reduction reduction = ReductionOf(kind);
  for (size_t i = 0; i < xs.size(); ++i) {
    const Status status = reduction.Verify(op, ShapeOf(op, i, xs[i]));
    if (!status.ok()) throw BadValue(status.message());
  }
}

Tensors OfRoot(const char* op, const char* argument, const std::vector<Tensors>& lists,
               const at::Tensor& each, bool is_root, int size) {
  if (!is_root) {
    if (lists.empty() || lists[0].empty()) return {};
    Wrong("D3", op, argument, "a list", "empty but on the root", "Pass None here");
  }
  const Tensors& list = Only(op, argument, lists);
  RequireCount(op, argument, list.size(), size, kRank);
  RequireOurs(op, argument, list);
  if (argument == std::string("output")) RequireOwnElements(op, argument, list);
  for (const at::Tensor& x : list) {
    RequireType(op, argument, x, each);
    RequireElements(op, argument, x, each.numel(), "as the tensor of each rank");
  }
  return list;
}

void RequireWhole(const char* op, const char* argument, const Tensors& wholes, const Tensors& parts,
                  int size) {
  RequireOurs(op, "input", parts);
  RequireOurs(op, "output", wholes);
  RequireCount(op, argument, wholes.size(), parts.size(), "part");
  for (size_t i = 0; i < wholes.size(); ++i) {
    RequireType(op, argument, wholes[i], parts[i]);
    RequireElements(op, argument, wholes[i], parts[i].numel() * size,
                    std::to_string(size) + " times those of a rank's part");
  }
  RequireOwnElements(op, "output", argument == std::string("output") ? wholes : parts);
}

}  // namespace xla_cc
