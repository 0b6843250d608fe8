// A batch of sends and receives of which every rank of the group has a part.
#pragma once

#include <string>
#include <vector>

#include "torch_xla_cc/groupcall/group_call.h"

namespace xla_cc {

struct Transfer {
  int from = 0;  // in the group
  int to = 0;
  size_t sent = 0;      // which end of the sender's it is
  size_t received = 0;  // and which of the receiver's
};
using Transfers = std::vector<Transfer>;

// Sends and receives brought together, those of one pair and tag in their order. `wrong` names what
// is left over, or differs.
Transfers Matched(const RankGroup& group, const std::vector<Said>& calls, std::string* wrong);

// In rounds: the transfers of one are of one shape and type, and no rank sends, or receives, two.
std::vector<Transfers> TransferRounds(const std::vector<Said>& calls, const Transfers& transfers);

}  // namespace xla_cc
