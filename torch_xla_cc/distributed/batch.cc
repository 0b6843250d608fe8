#include "torch_xla_cc/distributed/batch.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

namespace xla_cc {
namespace {

const MessageEnd& Sent(const std::vector<Said>& calls, const Message& message) {
  return calls[message.from].ends[message.sent];
}

bool OneShape(const MessageEnd& a, const MessageEnd& b) {
  return a.dtype == b.dtype && a.dims == b.dims;
}

}  // namespace

Messages Matched(const Group& group, const std::vector<Said>& calls, std::string* wrong) {
  using Way = std::tuple<int, int, int64_t>;  // from, to, tag
  std::map<Way, std::deque<size_t>> waiting;
  Messages messages;
  const auto say = [&](int rank, size_t end, const std::string& what) {
    *wrong += (wrong->empty() ? "group " + group.name + ": in a batch, " : "; ") +
              RankName(group, rank) + "'s " + calls[rank].ends[end].text + what;
  };
  const int size = static_cast<int>(calls.size());
  for (int rank = 0; rank < size; ++rank) {
    for (size_t i = 0; i < calls[rank].ends.size(); ++i) {
      const MessageEnd& end = calls[rank].ends[i];
      if (!end.sends) waiting[{static_cast<int>(end.peer), rank, end.tag}].push_back(i);
    }
  }
  for (int rank = 0; rank < size; ++rank) {
    for (size_t i = 0; i < calls[rank].ends.size(); ++i) {
      const MessageEnd& end = calls[rank].ends[i];
      if (!end.sends) continue;
      const int to = static_cast<int>(end.peer);
      std::deque<size_t>& receives = waiting[{rank, to, end.tag}];
      if (receives.empty()) {
        say(rank, i, " is received by nobody");
        continue;
      }
      const size_t receive = receives.front();
      receives.pop_front();
      const MessageEnd& other = calls[to].ends[receive];
      if (!OneShape(end, other)) {
        say(rank, i, " meets " + RankName(group, to) + "'s " + other.text);
      }
      messages.push_back({rank, to, i, receive});
    }
  }
  for (const auto& [way, receives] : waiting) {
    for (size_t receive : receives) say(std::get<1>(way), receive, " gets nothing");
  }
  if (!wrong->empty()) {
    *wrong += ". Give each send one receive, of the same tag, shape and dtype";
  }
  return messages;
}

std::vector<Messages> Rounds(const std::vector<Said>& calls, const Messages& messages) {
  std::vector<Messages> rounds;
  for (const Message& message : messages) {
    const auto fits = [&](const Messages& round) {
      return OneShape(Sent(calls, round[0]), Sent(calls, message)) &&
             std::none_of(round.begin(), round.end(), [&](const Message& other) {
               return other.from == message.from || other.to == message.to;
             });
    };
    const auto found = std::find_if(rounds.begin(), rounds.end(), fits);
    if (found == rounds.end()) {
      rounds.push_back({message});
    } else {
      found->push_back(message);
    }
  }
  return rounds;
}

}  // namespace xla_cc
