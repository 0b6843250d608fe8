#include "pod/memory/group.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace xla_cc::pod::memory {
namespace {

// All members together read at most so much where each reduces all, which spares a meeting.
constexpr size_t kReadBytes = size_t{2} << 20;
constexpr size_t kLine = 64;

const char* const kKinds[] = {"an all_gather", "an all_reduce", "a reduce_scatter",
                              "the second half of an all_reduce"};
const char* const kTypes[] = {"",       "bytes",  "int8",      "uint8",     "int16",
                              "uint16", "int32",  "uint32",    "int64",     "uint64",
                              "float",  "double", "complex64", "complex128"};
const char* const kReductions[] = {"", ", sum", ", product", ", minimum", ", maximum"};

// Also of what another process has written there.
template <size_t kSize>
const char* Named(const char* const (&names)[kSize], uint32_t value) {
  return value < kSize ? names[value] : "of an unknown kind";
}

std::string Said(const Call& call) {
  return std::string(Named(kKinds, call.kind)) + " of " + std::to_string(call.bytes) + " bytes (" +
         Named(kTypes, call.type) + Named(kReductions, call.reduction) + ")";
}

void Reduced(Type type, Reduction reduction, const std::vector<const std::byte*>& given,
             std::byte* result, size_t count) {
  if (!Reduce(type, reduction, given, result, count)) {
    throw Failure(std::string("XLA has no reduction") +
                  Named(kReductions, static_cast<uint32_t>(reduction)) + " of " +
                  Named(kTypes, static_cast<uint32_t>(type)));
  }
}

// memcpy of nothing may not be given null pointers, which XLA's empty buffers may be.
void Copy(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

}  // namespace

Group::Group(Region& region, Windows& windows, const Ranks& ranks, int place)
    : region_(region),
      windows_(windows),
      ranks_(ranks),
      place_(place),
      number_(region.PlaceOf(ranks)),
      state_(region.Group(number_)) {}

void Group::AllGather(const std::byte* given, std::byte* result, size_t bytes) {
  InParts(bytes, kWindowBytes, [&](size_t begin, size_t count) {
    Copy(Open(), given + begin, count);
    const auto windows = Meet(Kind::kAllGather, Type::kByte, Reduction::kNone, bytes);
    for (int i = 0; i < size(); ++i) Copy(result + i * bytes + begin, windows[i], count);
  });
}

void Group::AllReduce(const std::byte* given, std::byte* result, size_t count, Type type,
                      Reduction reduction) {
  const size_t each = SizeOf(type);
  InParts(count, kWindowBytes / each, [&](size_t begin, size_t now) {
    Copy(Open(), given + begin * each, now * each);
    const auto windows = Meet(Kind::kAllReduce, type, reduction, count * each);
    const size_t read = now * each * size() * size();
    if (read <= kReadBytes) {
      Reduced(type, reduction, windows, result + begin * each, now);
    } else {
      ReduceSlices(windows, result + begin * each, now, type, reduction);
    }
  });
}

// Each member reduces a slice of all windows, in its own, of which nobody else reads that slice
// before the next meeting.
void Group::ReduceSlices(std::vector<const std::byte*> windows, std::byte* result, size_t count,
                         Type type, Reduction reduction) {
  const size_t each = SizeOf(type);
  const size_t lines = (count * each + kLine - 1) / kLine;
  const size_t slice = (lines + size() - 1) / size() * kLine;  // bytes
  const auto begin = [&](int i) { return std::min(i * slice, count * each); };
  const size_t own = begin(place_), length = begin(place_ + 1) - own;
  std::vector<const std::byte*> given = windows;
  for (const std::byte*& one : given) one += own;
  Reduced(type, reduction, given, region_.Window(region_.rank(), window_) + own, length / each);
  Meet(Kind::kSlices, type, reduction, count * each);
  for (int i = 0; i < size(); ++i) {
    Copy(result + begin(i), windows[i] + begin(i), begin(i + 1) - begin(i));
  }
}

void Group::ReduceScatter(const std::byte* given, std::byte* result, size_t count, Type type,
                          Reduction reduction) {
  const size_t each = SizeOf(type);
  const size_t most = kWindowBytes / each / size();
  InParts(count, most, [&](size_t begin, size_t now) {
    std::byte* window = Open();
    for (int i = 0; i < size(); ++i) {
      Copy(window + i * now * each, given + (i * count + begin) * each, now * each);
    }
    auto windows = Meet(Kind::kReduceScatter, type, reduction, count * each);
    for (const std::byte*& one : windows) one += place_ * now * each;
    Reduced(type, reduction, windows, result + begin * each, now);
  });
}

void Group::InParts(size_t count, size_t most, const std::function<void(size_t, size_t)>& step) {
  const std::lock_guard<std::mutex> lock(in_use_);
  size_t begin = 0;
  do {  // also of nothing: all meet
    const size_t now = std::min(count - begin, most);
    step(begin, now);
    Finish();
    begin += now;
  } while (begin < count);
}

std::byte* Group::Open() {
  window_ = windows_.Take(state_, parts_ + 1);
  return region_.Window(region_.rank(), window_);
}

std::vector<const std::byte*> Group::Meet(Kind kind, Type type, Reduction reduction, size_t bytes) {
  if (region_.ended()) region_.FailEnded();
  const uint64_t all = ++meetings_ * size();
  const size_t turn = meetings_ % 2;
  const Call own{static_cast<uint32_t>(kind), static_cast<uint32_t>(type),
                 static_cast<uint32_t>(reduction), window_, bytes};
  state_.members[place_].calls[turn] = own;
  if (state_.arrived.fetch_add(1) + 1 == all) {
    Ring(state_.bell);
  } else if (!Wait(state_.bell, region_.ended(), [&] { return state_.arrived.load() >= all; })) {
    region_.FailEnded();
  }
  std::vector<const std::byte*> windows;
  for (int i = 0; i < size(); ++i) {
    const Call& others = state_.members[i].calls[turn];
    Compare(own, others, ranks_[i]);
    windows.push_back(region_.Window(ranks_[i], others.window % kWindows));
  }
  return windows;
}

void Group::Compare(const Call& own, const Call& others, int rank) const {
  if (own.kind == others.kind && own.type == others.type && own.reduction == others.reduction &&
      own.bytes == others.bytes) {
    return;
  }
  std::string group;
  for (const int one : ranks_) group += (group.empty() ? "" : ",") + std::to_string(one);
  // The group last: XLA cuts what is long.
  throw Failure("rank " + std::to_string(region_.rank()) + " is in " + Said(own) + ", and rank " +
                std::to_string(rank) + " in " + Said(others) +
                ": ranks have to call the same in the same order, in group [" + group + "]");
}

void Group::Finish() { state_.members[place_].finished = ++parts_; }

}  // namespace xla_cc::pod::memory
