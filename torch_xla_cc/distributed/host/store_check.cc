#include "torch_xla_cc/distributed/host/store_check.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>

#include "torch_xla_cc/errors.h"

namespace xla_cc {
namespace {

using Clock = std::chrono::steady_clock;

// How long this rank waits in the store before it looks around. Then how long between two looks,
// longer each time: all who wait ask one store.
constexpr Timeout kSlice{500};
constexpr Timeout kFirstPause{20};
constexpr Timeout kDying{2000};   // from the loss of a process's connections to its end, at most
constexpr Timeout kAnswer{5000};  // how long to wait for what is there
constexpr const char* kBroken = "broken";
constexpr const char* kProcess = "process";
constexpr const char* kLast = "last";  // of the calls that the group numbers
constexpr const char* kNote = "note";  // of those of two ranks
// How many calls a rank's part of them is kept at most: to delete it takes an answer of the store.
constexpr uint64_t kKept = 32;

std::vector<uint8_t> ToBytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string ToText(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The fields of /proc/<pid>/stat behind the name, which may hold anything: state first.
std::vector<std::string> Stat(const std::string& pid) {
  const std::string line = FirstLine("/proc/" + pid + "/stat");
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream rest(line.substr(name_end + 1));
  std::vector<std::string> fields;
  for (std::string field; rest >> field;) fields.push_back(field);
  return fields;
}

constexpr size_t kState = 0;
constexpr size_t kStart = 19;  // when the process began

// The machine and its process numbers: those of a container are others.
std::string Place() {
  char space[64] = {};
  const ssize_t size = readlink("/proc/self/ns/pid", space, sizeof(space) - 1);
  return FirstLine("/proc/sys/kernel/random/boot_id") + " " +
         (size > 0 ? std::string(space, size) : "?");
}

std::string ThisProcess() {
  const std::string pid = std::to_string(getpid());
  const std::vector<std::string> stat = Stat(pid);
  return Place() + " " + pid + " " + (stat.size() > kStart ? stat[kStart] : "?");
}

// Whether it is on this machine and no longer runs.
bool HasDied(const std::string& process) {
  std::istringstream fields(process);
  std::string boot;
  std::string space;
  std::string pid;
  std::string start;
  if (!(fields >> boot >> space >> pid >> start) || boot + " " + space != Place()) return false;
  const std::vector<std::string> stat = Stat(pid);
  if (stat.size() <= kStart) return true;
  return stat[kStart] != start || stat[kState] == "Z" || stat[kState] == "X";
}

// Whether a wait in a store has ended without what was waited for. FileStore says so in words only.
bool IsTimeout(const std::exception& error) {
  return dynamic_cast<const c10::DistStoreError*>(&error) != nullptr ||
         std::string(error.what()).find("imeout") != std::string::npos;
}

std::string KeyOf(const char* kind, int rank) {
  return std::string(kind) + "/" + std::to_string(rank);
}

}  // namespace

StoreCheck::StoreCheck(RankGroup group, const StorePtr& store, CheckMode mode)
    : group_(std::move(group)), mode_(mode), store_(store) {
  store_.Connect()->set(KeyOf(kProcess, group_.rank), ToBytes(ThisProcess()));
}

std::vector<std::string> StoreCheck::Keys(uint64_t number, const Said& said) const {
  // Of one build on all ranks.
  const size_t same =
      std::hash<std::string>()(said.what + (mode_ == CheckMode::kFull ? said.site : ""));
  std::vector<std::string> keys;
  for (int rank = 0; rank < group_.size(); ++rank) {
    keys.push_back(std::to_string(number) + "/" + std::to_string(rank) + "/" +
                   std::to_string(same));
  }
  return keys;
}

StoreCheck::Bytes StoreCheck::Numbered(uint64_t number, const Said& said) {
  return ToBytes(std::to_string(++order_) + "\n" + std::to_string(number) + "\n" + Encode(said));
}

std::string StoreCheck::Get(const std::string& key, const std::string& otherwise) {
  try {
    const Connection store = store_.Connect();
    if (store->check({key})) return ToText(store.Await({key}, kAnswer)[0]);
  } catch (const std::exception&) {
  }
  return otherwise;
}

std::vector<int> StoreCheck::Dead() {
  const std::lock_guard lock(mutex_);
  processes_.resize(group_.size());
  std::vector<int> dead;
  for (int rank = 0; rank < group_.size(); ++rank) {
    std::string& process = processes_[rank];
    if (process.empty()) process = Get(KeyOf(kProcess, rank), "");
    if (!process.empty() && HasDied(process)) dead.push_back(rank);
  }
  return dead;
}

StoreCheck::Last StoreCheck::Parsed(const std::string& numbered) {
  std::istringstream text(numbered);
  Last last;
  if (!(text >> last.order >> last.number)) return {};
  text.ignore();  // the end of the line
  last.said = Decode(numbered.substr(text.tellg()));
  return last;
}

StoreCheck::Last StoreCheck::LastOf(const char* kind, int rank) {
  return Parsed(Get(KeyOf(kind, rank), ""));
}

std::string StoreCheck::LastCall(int rank) {
  const Last numbered = LastOf(kLast, rank);
  const Last other = LastOf(kNote, rank);
  const Last& last = numbered.order > other.order ? numbered : other;
  if (last.order == 0) return "made no call of this group";
  return "last called " + last.said.what + " at " + last.said.site;
}

void StoreCheck::Note(const Said& said) {
  store_.Connect()->set(KeyOf(kNote, group_.rank), Numbered(0, said));
}

void StoreCheck::Break(const std::string& why, bool timeout) {
  try {
    const Connection store = store_.Connect();
    if (!store->check({kBroken})) {
      store->set(kBroken, ToBytes((timeout ? "T" : "M") + why));
      store->check({kBroken});  // it has arrived
    }
  } catch (const std::exception&) {
    // The store is gone, and so will be the others' way to hear of it.
  }
}

void StoreCheck::ThrowIfBroken() {
  const std::string told = Get(kBroken, "");
  if (told.empty()) return;
  if (told[0] == 'T') throw CollectiveTimeout(told.substr(1));
  throw CollectiveMismatch(told.substr(1));
}

void StoreCheck::ThrowMissing(const GroupCall& call, const Said& said,
                              const std::vector<int>& dead) {
  ThrowIfBroken();
  std::string text = "group " + group_.name + ": " + RankName(group_, group_.rank);
  if (dead.empty()) {
    text += " waited the timeout of " + Milliseconds(call.timeout) + " with ";
  } else {
    text += " waits in vain with ";
  }
  text += said.what + " at " + said.site;
  for (int rank = 0; rank < group_.size(); ++rank) {
    const bool died = std::find(dead.begin(), dead.end(), rank) != dead.end();
    if (rank == group_.rank) continue;
    if (call.number > 0 && !died && LastOf(kLast, rank).number >= call.number) continue;
    text += "; " + RankName(group_, rank) + (died ? " has died, and " : " has not come, and ") +
            LastCall(rank);
  }
  Break(text, true);
  throw CollectiveTimeout(text);
}

std::vector<Said> StoreCheck::Compare(const GroupCall& call, const Said& said) {
  if (group_.size() == 1 || (mode_ == CheckMode::kOff && !call.meets)) return {};
  const bool differs_by_rank = !said.sent.empty() || !said.ends.empty();
  const std::vector<std::string> keys = Keys(call.number, said);
  std::vector<Said> calls;
  try {
    const Connection store = store_.Connect();
    store->multiSet({keys[group_.rank], KeyOf(kLast, group_.rank)},
                    {ToBytes(differs_by_rank ? Encode(said) : "1"), Numbered(call.number, said)});
    const auto await = [&](Timeout limit) {
      if (!differs_by_rank) return store->wait(keys, limit);
      for (const Bytes& bytes : store.Await(keys, limit)) calls.push_back(Decode(ToText(bytes)));
    };
    try {
      await(std::min(call.timeout, kSlice));
    } catch (const std::exception& error) {
      if (!IsTimeout(error)) throw;
      AwaitLonger(keys, call, said);
      await(kSlice);
    }
  } catch (const c10::DistError& error) {  // not the slice: the store cannot be reached
    Explain(call, said, error.what(), -1);
  }
  if (to_delete_.empty()) Dead();  // reads who they are, while whoever keeps the store lives
  to_delete_.push_back(keys[group_.rank]);
  if (differs_by_rank) ThrowIfTheyDiffer(calls);
  return calls;
}

void StoreCheck::ThrowIfTheyDiffer(const std::vector<Said>& calls) {
  const std::string wrong = Mismatch(group_, calls, mode_ == CheckMode::kFull);
  if (wrong.empty()) return;
  Break(wrong, false);
  throw CollectiveMismatch(wrong);
}

std::vector<Said> StoreCheck::AllAt(uint64_t number) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < group_.size(); ++rank) keys.push_back(KeyOf(kLast, rank));
  const Connection store = store_.Connect();
  if (!store->check(keys)) return {};
  std::vector<Said> calls;
  for (const Bytes& bytes : store.Await(keys, kSlice)) {
    Last last = Parsed(ToText(bytes));
    if (last.number != number) return {};
    calls.push_back(std::move(last.said));
  }
  return calls;
}

void StoreCheck::AwaitLonger(const std::vector<std::string>& keys, const GroupCall& call,
                             const Said& said) {
  try {
    AwaitKeys(keys, call, said);
    ThrowIfBroken();  // by a rank that has given up just before the last one came
  } catch (const std::exception&) {
    // Or a rank that comes later would find that all are there, and begin alone.
    Delete(keys[group_.rank]);
    throw;
  }
}

// Asks, and does not wait in the store, which prints a warning each time that it waits in vain.
void StoreCheck::AwaitKeys(const std::vector<std::string>& keys, const GroupCall& call,
                           const Said& said) {
  const Clock::time_point end = Clock::now() + std::max(call.timeout - kSlice, Timeout(0));
  for (Timeout pause = kFirstPause; !store_.Connect()->check(keys);
       pause = std::min(2 * pause, kSlice)) {
    ThrowIfBroken();
    if (const auto calls = AllAt(call.number); !calls.empty()) ThrowIfTheyDiffer(calls);
    const std::vector<int> dead = Dead();
    if (!dead.empty() || Clock::now() >= end) ThrowMissing(call, said, dead);
    std::this_thread::sleep_for(
        std::clamp(std::chrono::duration_cast<Timeout>(end - Clock::now()), Timeout(1), pause));
  }
}

bool StoreCheck::Delete(const std::string& key) {
  try {
    store_.Connect()->deleteKey(key);
    return true;
  } catch (const std::exception&) {
    return false;  // some stores cannot; the next call says if the store is gone
  }
}

void StoreCheck::CleanUp() {
  // All ranks have come to the last call, and so have read those before. They take turns.
  if (++cleaned_up_ % kKept != group_.rank % kKept) return;
  while (to_delete_.size() > 1 && Delete(to_delete_.front())) to_delete_.erase(to_delete_.begin());
  if (to_delete_.size() > 1) to_delete_.clear();
}

void StoreCheck::Explain(const GroupCall& call, const Said& said, const std::string& error,
                         int peer) {
  ThrowIfBroken();
  const bool timed_out =
      error.find("imed out") != std::string::npos || error.find("imeout") != std::string::npos;
  std::vector<int> dead = Dead();
  // A process that is killed loses its connections first, and is gone a little later.
  const Clock::time_point end = Clock::now() + kDying;
  Timeout pause = kFirstPause;
  for (; dead.empty() && !timed_out && Clock::now() < end; pause = std::min(2 * pause, kSlice)) {
    std::this_thread::sleep_for(pause);
    ThrowIfBroken();
    dead = Dead();
  }
  if (!dead.empty()) ThrowMissing(call, said, dead);
  std::string text = "group " + group_.name + ": " + RankName(group_, group_.rank);
  text += timed_out ? " waited the timeout of " + Milliseconds(call.timeout) + " in "
                    : " has failed in ";
  text += said.what + " at " + said.site;
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (rank == group_.rank || (peer >= 0 && rank != peer)) continue;
    text += "; " + RankName(group_, rank) + " " + LastCall(rank);
  }
  text += " (" + error.substr(0, error.find('\n')) + ")";
  Break(text, true);
  throw CollectiveTimeout(text);
}

}  // namespace xla_cc
