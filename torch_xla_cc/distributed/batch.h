// A batch of sends and receives of which every rank of the group has a part.
#pragma once

#include <string>
#include <vector>

#include "torch_xla_cc/distributed/call.h"

namespace xla_cc {

struct Message {
  int from = 0;  // in the group
  int to = 0;
  size_t sent = 0;      // which end of the sender's it is
  size_t received = 0;  // and which of the receiver's
};
using Messages = std::vector<Message>;

// Sends and receives brought together, those of one pair and tag in their order. `wrong` names what
// is left over, or differs.
Messages Matched(const Group& group, const std::vector<Said>& calls, std::string* wrong);

// In rounds: the messages of one are of one shape and type, and no rank sends, or receives, two.
std::vector<Messages> Rounds(const std::vector<Said>& calls, const Messages& messages);

}  // namespace xla_cc
