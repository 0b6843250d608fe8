#include "torch_xla_cc/distributed/board.h"

#include "torch_xla_cc/arguments.h"

namespace xla_cc {
namespace {

std::string Seconds(Timeout timeout) { return std::to_string(timeout.count()) + " ms"; }

}  // namespace

Board& Board::Get() {
  static auto* board = new Board;
  return *board;
}

void Board::Clear() {
  const std::lock_guard lock(mutex_);
  meetings_.clear();
  left_.clear();
  sent_.clear();
  asked_.clear();
  stopped_.clear();
}

void Board::Stop(const std::string& why) {
  const std::lock_guard lock(mutex_);
  stopped_ = why;
  changed_.notify_all();
}

std::vector<std::string> Board::Exchange(const Group& group, uint64_t number,
                                         const std::string& value, Timeout timeout) {
  std::unique_lock lock(mutex_);
  const Meeting key{group.name, number};
  meetings_[key][group.rank] = value;
  changed_.notify_all();
  const size_t size = group.members.size();
  const auto all = [&] { return meetings_[key].size() == size || !stopped_.empty(); };
  const bool in_time = changed_.wait_for(lock, timeout, all);
  if (!stopped_.empty()) throw RanksDisagree(stopped_);
  if (!in_time) {
    std::string missing;
    for (size_t rank = 0; rank < size; ++rank) {
      if (meetings_[key].count(static_cast<int>(rank))) continue;
      missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    }
    throw RanksDisagree("group " + group.name + ": rank " + std::to_string(group.rank) +
                        " waited " + Seconds(timeout) + " for rank " + missing +
                        ", which has not come");
  }
  std::vector<std::string> values;
  for (const auto& [rank, its] : meetings_[key]) values.push_back(its);
  if (++left_[key] == static_cast<int>(size)) {
    meetings_.erase(key);
    left_.erase(key);
  }
  return values;
}

void Board::Put(const Group& group, int to, int tag, at::Tensor x) {
  const std::lock_guard lock(mutex_);
  std::list<SlotPtr>& asked = asked_[group.name];
  for (auto at = asked.begin(); at != asked.end(); ++at) {
    Slot& slot = **at;
    if (slot.to != to || slot.tag != tag || (slot.from >= 0 && slot.from != group.rank)) continue;
    slot.filled = true;
    slot.source = group.rank;
    slot.x = std::move(x);
    asked.erase(at);
    changed_.notify_all();
    return;
  }
  sent_[group.name].push_back({to, group.rank, tag, true, group.rank, std::move(x)});
}

Board::SlotPtr Board::Ask(const Group& group, int from, int tag) {
  const std::lock_guard lock(mutex_);
  std::list<Slot>& sent = sent_[group.name];
  for (auto at = sent.begin(); at != sent.end(); ++at) {
    if (at->to != group.rank || at->tag != tag || (from >= 0 && at->source != from)) continue;
    auto slot = std::make_shared<Slot>(std::move(*at));
    sent.erase(at);
    return slot;
  }
  auto slot = std::make_shared<Slot>(Slot{group.rank, from, tag});
  asked_[group.name].push_back(slot);
  return slot;
}

bool Board::HasCome(const SlotPtr& slot) {
  const std::lock_guard lock(mutex_);
  return slot->filled;
}

void Board::Await(const Group& group, const SlotPtr& slot, Timeout timeout) {
  std::unique_lock lock(mutex_);
  const bool in_time =
      changed_.wait_for(lock, timeout, [&] { return slot->filled || !stopped_.empty(); });
  if (slot->filled) return;
  asked_[group.name].remove(slot);
  if (in_time) throw RanksDisagree(stopped_);
  std::string others;
  for (const Slot& sent : sent_[group.name]) {
    others += (others.empty() ? "" : "; ") + std::string("from rank ") +
              std::to_string(sent.source) + " to rank " + std::to_string(sent.to) + ", tag " +
              std::to_string(sent.tag);
  }
  throw RanksDisagree("recv: group " + group.name + ": rank " + std::to_string(group.rank) +
                      " waited " + Seconds(timeout) + " for " +
                      (slot->from < 0 ? "any rank" : "rank " + std::to_string(slot->from)) +
                      ", tag " + std::to_string(slot->tag) + ", and nothing was sent. Sent and " +
                      "not received: " + (others.empty() ? "nothing" : others));
}

}  // namespace xla_cc
