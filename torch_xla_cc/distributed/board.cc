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
  boxes_.clear();
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
  boxes_[{group.name, group.rank, to, tag}].push_back(std::move(x));
  changed_.notify_all();
}

std::pair<int, at::Tensor> Board::Take(const Group& group, int from, int tag, Timeout timeout) {
  std::unique_lock lock(mutex_);
  const int first = from < 0 ? 0 : from;
  const int last = from < 0 ? group.size() - 1 : from;
  int found = -1;
  const auto any = [&] {
    for (int rank = first; rank <= last && found < 0; ++rank) {
      if (boxes_.count({group.name, rank, group.rank, tag})) found = rank;
    }
    return found >= 0 || !stopped_.empty();
  };
  const bool in_time = changed_.wait_for(lock, timeout, any);
  if (found < 0 && !stopped_.empty()) throw RanksDisagree(stopped_);
  if (!in_time) {
    throw RanksDisagree("recv: group " + group.name + ": rank " + std::to_string(group.rank) +
                        " waited " + Seconds(timeout) + " for " +
                        (from < 0 ? "any rank" : "rank " + std::to_string(from)) + ", tag " +
                        std::to_string(tag) + ", and nothing was sent");
  }
  const Box key{group.name, found, group.rank, tag};
  std::deque<at::Tensor>& box = boxes_[key];
  std::pair<int, at::Tensor> taken{found, std::move(box.front())};
  box.pop_front();
  if (box.empty()) boxes_.erase(key);
  return taken;
}

}  // namespace xla_cc
