// How the shapes of a call are written where ranks compare them.
#pragma once

#include <string>
#include <vector>

#include "torch_xla_cc/distributed/transport.h"

namespace xla_cc {

std::string Text(const Tensors& xs);                  // float32[2,3], float32[4] x 8
std::string Text(const std::vector<Tensors>& lists);  // each in brackets
std::string RowText(const at::Tensor& x);             // without dimension 0

// The shapes on the other side, where they are not those that go without saying: in a graph the
// reshape is of the program that the ranks share. Empty otherwise, else begins with `word`.
std::string Unlike(const char* word, const Tensors& xs, const Tensors& usual);
// The same for tensors that have all ranks' parts, which are usually one behind the other.
std::string UnlikeWhole(const char* word, const Tensors& wholes, const Tensors& parts);

}  // namespace xla_cc
