// What a rank says of a call to the others of its group, before anything can block on it, and
// whether what they all say fits together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "torch_xla_cc/groupcall/rank_group.h"

namespace xla_cc {

// One end of a message in a batch of sends and receives.
struct TransferEnd {
  bool sends = false;
  int64_t peer = 0;  // in the group
  int64_t tag = 0;
  int64_t dtype = 0;  // a c10::ScalarType
  std::vector<int64_t> dims;
  std::string text;  // the call, with file and line
};

struct Said {
  std::string what;               // the op and all that must be equal on the ranks
  std::vector<int64_t> sent;      // to each rank of the group, of an exchange of parts
  std::vector<int64_t> received;  // from each
  std::vector<TransferEnd> ends;  // of a batch
  std::string site;
};

// As text, between processes. Decode throws RanksDisagree if it is none of ours.
std::string Encode(const Said& said);
Said Decode(const std::string& text);
// The same of several.
std::string EncodeAll(const std::vector<Said>& calls);
std::vector<Said> DecodeAll(const std::string& text);

// Why calls do not fit together, one a rank of the group; empty if they do. If `sites`, they must
// also come from one line.
std::string Mismatch(const RankGroup& group, const std::vector<Said>& calls, bool sites);

}  // namespace xla_cc
