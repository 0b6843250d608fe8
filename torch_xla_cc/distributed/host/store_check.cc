#include "torch_xla_cc/distributed/host/store_check.h"

#include <c10/util/Exception.h>

#include <algorithm>
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
constexpr const char* kTells = "tells";
constexpr const char* kLast = "last";  // of the calls that the group numbers
constexpr const char* kNote = "note";  // of those of two ranks
// How many calls a rank's part of them is kept at most: to delete it takes an answer of the store.
constexpr uint64_t kKept = 32;
constexpr int64_t kGaveUp = int64_t{1} << 32;  // more than there are ranks

std::vector<uint8_t> ToBytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string ToText(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

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
    : group_(std::move(group)), mode_(mode), store_(store), machine_(group_.rank, store_) {
  // So that those of all ranks can be read in one request.
  store_.Connect()->multiSet({KeyOf(kLast, group_.rank), KeyOf(kNote, group_.rank)}, {{}, {}});
}

StoreCheck::Roll StoreCheck::RollOf(uint64_t number, const Said& said) const {
  // Of one build on all ranks.
  const size_t same =
      std::hash<std::string>()(said.what + (mode_ == CheckMode::kFull ? said.site : ""));
  const std::string call = std::to_string(number);
  const std::string key = call + "/" + std::to_string(same);
  return {key, key + "/all", key + "/told", call + "/late"};
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

StoreCheck::Last StoreCheck::Parsed(const std::string& numbered) {
  std::istringstream text(numbered);
  Last last;
  if (!(text >> last.order >> last.number)) return {};
  text.ignore();  // the end of the line
  last.said = Decode(numbered.substr(text.tellg()));
  return last;
}

std::string StoreCheck::LastCall(const Last& numbered, const Last& other) {
  const Last& last = numbered.order > other.order ? numbered : other;
  if (last.order == 0) return "made no call of this group";
  return "last called " + last.said.what + " at " + last.said.site;
}

std::vector<StoreCheck::Last> StoreCheck::ReadLast(const Connection& store,
                                                   const char* kind) const {
  std::vector<std::string> keys;
  for (int rank = 0; rank < group_.size(); ++rank) keys.push_back(KeyOf(kind, rank));
  std::vector<Last> calls;
  if (!store->check(keys)) return calls;
  for (const Bytes& bytes : store.Await(keys, kAnswer)) calls.push_back(Parsed(ToText(bytes)));
  return calls;
}

std::vector<StoreCheck::Last> StoreCheck::LastOfAll(const char* kind) {
  try {
    std::vector<Last> calls = ReadLast(store_.Connect(), kind);
    if (!calls.empty()) return calls;
  } catch (const std::exception&) {
  }
  // A rank has not made the group yet, or the store is gone.
  std::vector<Last> calls;
  for (int rank = 0; rank < group_.size(); ++rank) {
    calls.push_back(Parsed(Get(KeyOf(kind, rank), "")));
  }
  return calls;
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

bool StoreCheck::IsGone(int peer) {
  ThrowIfBroken();
  const std::vector<int> dead = machine_.Dead();
  if (peer < 0) return static_cast<int>(dead.size()) == group_.size() - 1;
  return std::count(dead.begin(), dead.end(), peer) > 0;
}

void StoreCheck::LetOneTell() {
  try {
    if (store_.Connect()->add(kTells, 1) == 1) return;
  } catch (const std::exception&) {
    return;
  }
  // It may die meanwhile.
  const Clock::time_point end = Clock::now() + kAnswer;
  for (Timeout pause = kFirstPause; Clock::now() < end; pause = std::min(2 * pause, kSlice)) {
    ThrowIfBroken();
    std::this_thread::sleep_for(pause);
  }
}

void StoreCheck::ThrowMissing(const GroupCall& call, const Said& said,
                              const std::vector<int>& dead) {
  ThrowIfBroken();
  LetOneTell();
  std::string text = "group " + group_.name + ": " + RankName(group_, group_.rank);
  if (dead.empty()) {
    text += " waited the timeout of " + Milliseconds(call.timeout) + " with ";
  } else {
    text += " waits in vain with ";
  }
  text += said.what + " at " + said.site;
  const std::vector<Last> numbered = LastOfAll(kLast);
  const std::vector<Last> others = LastOfAll(kNote);
  for (int rank = 0; rank < group_.size(); ++rank) {
    const bool died = std::find(dead.begin(), dead.end(), rank) != dead.end();
    if (rank == group_.rank) continue;
    // A message (0) is of two ranks: the others have not been waited for.
    const bool came = call.number == 0 || numbered[rank].number >= call.number;
    if (!died && came) continue;
    text += "; " + RankName(group_, rank) + (died ? " has died, and " : " has not come, and ") +
            LastCall(numbered[rank], others[rank]);
  }
  Break(text, true);
  throw CollectiveTimeout(text);
}

std::vector<Said> StoreCheck::Compare(const GroupCall& call, const Said& said, bool tell) {
  if (group_.size() == 1 || (mode_ == CheckMode::kOff && !call.meets)) return {};
  const bool differs = !said.sent.empty() || !said.ends.empty();
  const Roll roll = RollOf(call.number, said);
  std::vector<Said> calls;
  try {
    const Connection store = store_.Connect();
    store->set(KeyOf(kLast, group_.rank), Numbered(call.number, said));
    if (store->add(roll.count, 1) == group_.size()) {
      calls = LetAllGoOn(store, roll, differs, tell);
    } else {
      try {
        store->wait({roll.all}, std::min(call.timeout, kSlice));
      } catch (const std::exception& error) {
        if (!IsTimeout(error)) throw;
        AwaitLonger(call, said, roll);
      }
      if (differs && tell) calls = DecodeAll(ToText(store.Await({roll.told}, kAnswer)[0]));
    }
  } catch (const c10::DistError& error) {  // not the slice: the store cannot be reached
    Explain(call, said, error.what(), -1);
  }
  compared_ = call.number;
  machine_.AllHaveTold();
  if (call.number % group_.size() == static_cast<uint64_t>(group_.rank)) {  // they take turns
    to_delete_.emplace_back(call.number, roll.count);
    to_delete_.emplace_back(call.number, roll.all);
    if (differs && tell) to_delete_.emplace_back(call.number, roll.told);
  }
  return calls;
}

std::vector<Said> StoreCheck::LetAllGoOn(const Connection& store, const Roll& roll, bool differs,
                                         bool tell) {
  std::vector<Said> calls;
  if (differs) {
    for (Last& last : ReadLast(store, kLast)) calls.push_back(std::move(last.said));
    ThrowIfTheyDiffer(calls);
    if (tell) store->set(roll.told, ToBytes(EncodeAll(calls)));
  }
  store->set(roll.all, Bytes());
  return tell ? calls : std::vector<Said>();
}

void StoreCheck::ThrowIfTheyDiffer(const std::vector<Said>& calls) {
  const std::string wrong = Mismatch(group_, calls, mode_ == CheckMode::kFull);
  if (wrong.empty()) return;
  Break(wrong, false);
  throw CollectiveMismatch(wrong);
}

bool StoreCheck::GiveUp(const Roll& roll) {
  try {
    const int64_t count = store_.Connect()->add(roll.count, -kGaveUp);
    const bool was_full = count == group_.size() - kGaveUp;
    const bool another_was_first = count < -kGaveUp;
    return was_full || another_was_first;
  } catch (const std::exception&) {
    return false;
  }
}

void StoreCheck::AwaitLonger(const GroupCall& call, const Said& said, const Roll& roll) {
  std::vector<int> dead;
  try {
    const int64_t late = store_.Connect()->add(roll.late, 1);
    if (late == 1) to_delete_.emplace_back(call.number, roll.late);
    if (late == group_.size()) {  // all have come, and not to one place
      std::vector<Said> calls;
      for (Last& last : ReadLast(store_.Connect(), kLast)) calls.push_back(std::move(last.said));
      ThrowIfTheyDiffer(calls);
    }
    if (Watch(call.timeout - kSlice, roll, &dead)) return;
  } catch (const std::exception&) {
    GiveUp(roll);
    throw;
  }
  if (GiveUp(roll) && Watch(kAnswer, roll, nullptr)) return;
  ThrowMissing(call, said, dead);
}

// Asks, and does not wait in the store, which prints a warning each time that it waits in vain.
bool StoreCheck::Watch(Timeout limit, const Roll& roll, std::vector<int>* dead) {
  const Clock::time_point end = Clock::now() + std::max(limit, Timeout(0));
  for (Timeout pause = kFirstPause; !store_.Connect()->check({roll.all});
       pause = std::min(2 * pause, kSlice)) {
    ThrowIfBroken();
    if (dead != nullptr) *dead = machine_.Dead();
    if ((dead != nullptr && !dead->empty()) || Clock::now() >= end) return false;
    std::this_thread::sleep_for(
        std::clamp(std::chrono::duration_cast<Timeout>(end - Clock::now()), Timeout(1), pause));
  }
  return true;
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
  // All ranks have come to the last call, and so are past those before. They take turns.
  if (++cleaned_up_ % kKept != group_.rank % kKept) return;
  while (!to_delete_.empty() && to_delete_.front().first < compared_) {
    if (!Delete(to_delete_.front().second)) return to_delete_.clear();
    to_delete_.pop_front();
  }
}

void StoreCheck::Explain(const GroupCall& call, const Said& said, const std::string& error,
                         int peer) {
  ThrowIfBroken();
  const bool timed_out =
      error.find("imed out") != std::string::npos || error.find("imeout") != std::string::npos;
  std::vector<int> dead = machine_.Dead();
  // A process that is killed loses its connections first, and is gone a little later.
  const Clock::time_point end = Clock::now() + kDying;
  Timeout pause = kFirstPause;
  for (; dead.empty() && !timed_out && Clock::now() < end; pause = std::min(2 * pause, kSlice)) {
    std::this_thread::sleep_for(pause);
    ThrowIfBroken();
    dead = machine_.Dead();
  }
  if (!dead.empty()) ThrowMissing(call, said, dead);
  if (peer < 0) LetOneTell();
  std::string text = "group " + group_.name + ": " + RankName(group_, group_.rank);
  text += timed_out ? " waited the timeout of " + Milliseconds(call.timeout) + " in "
                    : " has failed in ";
  text += said.what + " at " + said.site;
  if (peer >= 0 && peer != group_.rank) {
    text += "; " + RankName(group_, peer) + " " +
            LastCall(Parsed(Get(KeyOf(kLast, peer), "")), Parsed(Get(KeyOf(kNote, peer), "")));
  } else if (peer < 0) {
    const std::vector<Last> numbered = LastOfAll(kLast);
    const std::vector<Last> others = LastOfAll(kNote);
    for (int rank = 0; rank < group_.size(); ++rank) {
      if (rank == group_.rank) continue;
      text += "; " + RankName(group_, rank) + " " + LastCall(numbered[rank], others[rank]);
    }
  }
  text += " (" + error.substr(0, error.find('\n')) + ")";
  Break(text, true);
  throw CollectiveTimeout(text);
}

}  // namespace xla_cc
