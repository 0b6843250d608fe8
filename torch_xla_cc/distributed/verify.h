// What a call of torch.distributed must keep to, by the labels of docs/spec.md. A BadValue names
// the op, the argument and its value otherwise.
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "torch_xla_cc/distributed/transport.h"

namespace xla_cc {

[[noreturn]] void Wrong(const std::string& label, const std::string& op,
                        const std::string& argument, const std::string& value,
                        const std::string& required, const std::string& remedy);

// (D1) a dense tensor on an XLA device; a list of them, not empty.
void RequireOurs(const char* op, const std::string& argument, const at::Tensor& x);
void RequireOurs(const char* op, const std::string& argument, const Tensors& xs);

// (D1) a list of one: a rank has one device.
template <class T>
const T& Only(const char* op, const std::string& argument, const std::vector<T>& list) {
  if (list.size() == 1) return list[0];
  Wrong("D1", op, argument, std::to_string(list.size()) + " entries", "one: a rank has one device",
        "Pass a list of one");
}

// (D2) outputs are of the type of the inputs.
void RequireType(const char* op, const std::string& argument, const at::Tensor& x,
                 const at::Tensor& like);

// (D3) a list with an entry for each of something: a rank, an input.
void RequireCount(const char* op, const std::string& argument, size_t count, size_t wanted,
                  const char* of);
constexpr const char* kRank = "rank of the group";

// (D4) elements of one tensor, by those of another.
void RequireElements(const char* op, const std::string& argument, const at::Tensor& x,
                     int64_t elements, const std::string& why);

// (D5) a rank of the group; a tag that the host transport can tell from its own.
void RequireRank(const char* op, const std::string& argument, int64_t rank, int size);
void RequireTag(const char* op, int tag);

// (D6) how dimension 0 is cut for the ranks.
void RequireSplits(const char* op, const std::string& argument, const std::vector<int64_t>& splits,
                   const at::Tensor& x, int size);

// (R0) to (R4) for each tensor.
void RequireReduction(const char* op, const Tensors& xs, const c10d::ReduceOp& kind);

// The list of the root, and none elsewhere, of tensors like the one that each rank has.
Tensors OfRoot(const char* op, const char* argument, const std::vector<Tensors>& lists,
               const at::Tensor& each, bool is_root, int size);

// One tensor for each, whose elements are those of all ranks' parts.
void RequireWhole(const char* op, const char* argument, const Tensors& wholes, const Tensors& parts,
                  int size);

}  // namespace xla_cc
