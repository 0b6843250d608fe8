#include "torch_xla_cc/groupcall/transfers.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

namespace xla_cc {
namespace {

const TransferEnd& Sent(const std::vector<Said>& calls, const Transfer& transfer) {
  return calls[transfer.from].ends[transfer.sent];
}

bool OneShape(const TransferEnd& a, const TransferEnd& b) {
  return a.dtype == b.dtype && a.dims == b.dims;
}

}  // namespace

Transfers Matched(const RankGroup& group, const std::vector<Said>& calls, std::string* wrong) {
  using Way = std::tuple<int, int, int64_t>;  // from, to, tag
  std::map<Way, std::deque<size_t>> waiting;
  Transfers transfers;
  const auto say = [&](int rank, size_t end, const std::string& what) {
    *wrong += (wrong->empty() ? "group " + group.name + ": in a batch, " : "; ") +
              RankName(group, rank) + "'s " + calls[rank].ends[end].text + what;
  };
  const int size = static_cast<int>(calls.size());
  for (int rank = 0; rank < size; ++rank) {
    for (size_t i = 0; i < calls[rank].ends.size(); ++i) {
      const TransferEnd& end = calls[rank].ends[i];
      if (end.peer < 0 || end.peer >= size) {
        say(rank, i, " names rank " + std::to_string(end.peer) + " of the group, which has none");
      } else if (!end.sends) {
        waiting[{static_cast<int>(end.peer), rank, end.tag}].push_back(i);
      }
    }
  }
  for (int rank = 0; rank < size; ++rank) {
    for (size_t i = 0; i < calls[rank].ends.size(); ++i) {
      const TransferEnd& end = calls[rank].ends[i];
      if (!end.sends || end.peer < 0 || end.peer >= size) continue;
      const int to = static_cast<int>(end.peer);
      std::deque<size_t>& receives = waiting[{rank, to, end.tag}];
      if (receives.empty()) {
        say(rank, i, " is received by nobody");
        continue;
      }
      const size_t receive = receives.front();
      receives.pop_front();
      const TransferEnd& other = calls[to].ends[receive];
      if (!OneShape(end, other)) {
        say(rank, i, " meets " + RankName(group, to) + "'s " + other.text);
      }
      transfers.push_back({rank, to, i, receive});
    }
  }
  for (const auto& [way, receives] : waiting) {
    for (size_t receive : receives) say(std::get<1>(way), receive, " gets nothing");
  }
  if (!wrong->empty()) {
    *wrong += ". Give each send one receive, of the same tag, shape and dtype";
  }
  return transfers;
}

std::vector<Transfers> TransferRounds(const std::vector<Said>& calls, const Transfers& transfers) {
  std::vector<Transfers> rounds;
  for (const Transfer& transfer : transfers) {
    const auto fits = [&](const Transfers& round) {
      return OneShape(Sent(calls, round[0]), Sent(calls, transfer)) &&
             std::none_of(round.begin(), round.end(), [&](const Transfer& other) {
               return other.from == transfer.from || other.to == transfer.to;
             });
    };
    const auto found = std::find_if(rounds.begin(), rounds.end(), fits);
    if (found == rounds.end()) {
      rounds.push_back({transfer});
    } else {
      found->push_back(transfer);
    }
  }
  return rounds;
}

}  // namespace xla_cc
