#include "torch_xla_cc/distributed/board.h"

#include <torch/csrc/utils/pybind.h>

#include <set>

#include "torch_xla_cc/arguments.h"

namespace xla_cc {
namespace {

// In words, with the line; takes the interpreter lock.
std::string Text(const CallPtr& call) {
  const py::gil_scoped_acquire locked;
  return call->what + " at " + ToString(Resolve(call->site));
}

}  // namespace

Board& Board::Get() {
  static auto* board = new Board;
  return *board;
}

void Board::Clear() {
  const std::lock_guard lock(mutex_);
  meetings_.clear();
  last_.clear();
  sent_.clear();
  asked_.clear();
  broken_.clear();
  stopped_.clear();
}

void Board::Stop(const std::string& why) {
  const std::lock_guard lock(mutex_);
  stopped_ = why;
  changed_.notify_all();
}

void Board::ThrowIfBroken(const Group& group, std::unique_lock<std::mutex>& lock) {
  if (!stopped_.empty()) throw RanksDisagree(stopped_);
  const auto found = broken_.find(group.name);
  if (found == broken_.end()) return;
  const Failure failure{{{found->second.why, {}}}, found->second.kind};
  lock.unlock();
  Ranks::Get().TakeFailure(group.own());  // told by this
  failure.Throw();
}

void Board::Break(const Group& group, std::unique_lock<std::mutex>& lock,
                  const std::function<std::string()>& why, Failure::Kind kind) {
  lock.unlock();  // words need the interpreter lock, whose owner may wait for this one
  const Failure failure{{{why(), {}}}, kind};
  lock.lock();
  ThrowIfBroken(group, lock);  // another was first
  broken_[group.name] = {failure.parts[0].text, kind};
  changed_.notify_all();
  std::set<int64_t> coming;  // those between here and their graphs
  for (const auto& [member, call] : last_[group.name]) {
    const bool on_its_way = call->number > 0 && !call->meets;
    if (on_its_way && call->state == GroupCall::State::kIssued) coming.insert(call->rank);
  }
  lock.unlock();
  Ranks::Get().Disagree(group.own(), coming, failure);  // those who wait to run their graphs
  failure.Throw();
}

void Board::Announce(const Group& group, const CallPtr& call) {
  std::unique_lock lock(mutex_);
  ThrowIfBroken(group, lock);
  last_[group.name][group.rank] = call;
  if (call->number == 0) return;
  const Key key{group.name, call->number};
  Meeting& meeting = meetings_[key];
  const bool same = meeting.calls.empty() || meeting.calls.begin()->second->what == call->what;
  meeting.calls[group.rank] = call;
  changed_.notify_all();
  if (!same) {
    const std::map<int, CallPtr> calls = meeting.calls;
    Break(
        group, lock,
        [&] {
          const py::gil_scoped_acquire locked;
          Group come = group;  // those who are there
          come.members.clear();
          std::vector<Said> said;
          for (const auto& [rank, its] : calls) {
            come.members.push_back(group.members[rank]);
            said.push_back(SaidOf(*its));
          }
          return Mismatch(come, said, false);
        },
        Failure::Kind::kMismatch);
  }
  // Those who do not meet here only compare.
  if (!call->meets && meeting.calls.size() == group.members.size()) meetings_.erase(key);
}

std::vector<CallPtr> Board::Meet(const Group& group, const CallPtr& call) {
  std::unique_lock lock(mutex_);
  const Key key{group.name, call->number};
  const size_t size = group.members.size();
  Meeting& meeting = meetings_[key];
  const bool in_time = changed_.wait_for(
      lock, call->timeout, [&] { return meeting.calls.size() == size || IsBroken(group); });
  ThrowIfBroken(group, lock);
  if (!in_time) {
    std::map<int, CallPtr> missing;  // and what they called last
    for (int rank = 0; rank < group.size(); ++rank) {
      if (meeting.calls.count(rank)) continue;
      const auto& last = last_[group.name];
      const auto found = last.find(rank);
      missing[rank] = found == last.end() ? nullptr : found->second;
    }
    Break(
        group, lock,
        [&] {
          std::string text = "group " + group.name + ": " + RankName(group, group.rank) +
                             " waited the timeout of " + Milliseconds(call->timeout) + " in " +
                             Text(call);
          for (const auto& [rank, last] : missing) {
            text += "; " + RankName(group, rank) + " has not come, and " +
                    (last ? "last called " + Text(last) : "made no call of this group");
          }
          return text;
        },
        Failure::Kind::kTimeout);
  }
  std::vector<CallPtr> calls;
  for (const auto& [rank, its] : meeting.calls) calls.push_back(its);
  if (++meeting.left == static_cast<int>(size)) meetings_.erase(key);
  lock.unlock();
  // All ranks have the same before them, and so throw, or not, alike.
  std::vector<Said> said;
  for (const CallPtr& its : calls) {
    said.push_back({its->what, its->sent, its->received, its->ends, ""});
  }
  if (Mismatch(group, said, false).empty()) return calls;
  const py::gil_scoped_acquire locked;
  for (size_t i = 0; i < calls.size(); ++i) said[i] = SaidOf(*calls[i]);
  throw CollectiveMismatch(Mismatch(group, said, false));
}

void Board::Put(const Group& group, int to, int tag, const CallPtr& call, at::Tensor x) {
  const std::lock_guard lock(mutex_);
  std::list<SlotPtr>& asked = asked_[group.name];
  asked.remove_if([](const SlotPtr& slot) { return slot.use_count() == 1; });  // were given up
  for (auto at = asked.begin(); at != asked.end(); ++at) {
    Slot& slot = **at;
    if (slot.to != to || slot.tag != tag) continue;
    if (slot.from != kAnySource && slot.from != group.rank) continue;
    slot.source = group.rank;
    slot.send = call;
    slot.x = std::move(x);
    asked.erase(at);
    changed_.notify_all();
    return;
  }
  sent_[group.name].push_back({to, group.rank, tag, nullptr, group.rank, call, std::move(x)});
}

Board::SlotPtr Board::Ask(const Group& group, int from, int tag, const CallPtr& call) {
  const std::lock_guard lock(mutex_);
  std::list<Slot>& sent = sent_[group.name];
  for (auto at = sent.begin(); at != sent.end(); ++at) {
    if (at->to != group.rank || at->tag != tag) continue;
    if (from != kAnySource && at->source != from) continue;
    auto slot = std::make_shared<Slot>(std::move(*at));
    slot->receive = call;
    sent.erase(at);
    return slot;
  }
  auto slot = std::make_shared<Slot>(Slot{group.rank, from, tag, call});
  asked_[group.name].push_back(slot);
  return slot;
}

bool Board::HasCome(const SlotPtr& slot) {
  const std::lock_guard lock(mutex_);
  return slot->send != nullptr;
}

void Board::Await(const Group& group, const SlotPtr& slot, Timeout timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [&] { return slot->send || IsBroken(group); });
  if (slot->send) {
    if (slot->send->part == slot->receive->part) return;
    Break(
        group, lock,
        [&] {
          return "group " + group.name + ": " + RankName(group, slot->source) + " calls " +
                 Text(slot->send) + ", and " + RankName(group, group.rank) + " " +
                 Text(slot->receive) + ". Send and receive one shape and dtype";
        },
        Failure::Kind::kMismatch);
  }
  asked_[group.name].remove(slot);
  ThrowIfBroken(group, lock);
  std::vector<std::pair<int, CallPtr>> others;
  for (const Slot& sent : sent_[group.name]) others.emplace_back(sent.source, sent.send);
  Break(
      group, lock,
      [&] {
        std::string text = "group " + group.name + ": " + RankName(group, group.rank) +
                           " waited the timeout of " + Milliseconds(timeout) + " in " +
                           Text(slot->receive) +
                           ", and nothing was sent to it. Sent and not received: ";
        for (const auto& [source, call] : others) {
          text += RankName(group, source) + " " + Text(call) + "; ";
        }
        return text + (others.empty() ? "nothing" : "that is all");
      },
      Failure::Kind::kTimeout);
}

}  // namespace xla_cc
