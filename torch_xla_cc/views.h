// Views of what may be freed.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace xla_cc {

// Has each follow its base now, as it else would when it is next used: until then it keeps alive
// what its base was. Of a base without values (of the meta device) it takes only that, and follows
// when it is used: torch would make each such view by operators in Python, of which each of the n
// views that split gives makes all n.
void Follow(const std::vector<at::Tensor>& views);

}  // namespace xla_cc
