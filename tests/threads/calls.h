// Calls of ranks that are threads, beside the graph, for the tests of meetings.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/threads/fakes.h"
#include "torch_xla_cc/groupcall/group_call.h"
#include "torch_xla_cc/threads/meeting.h"

namespace xla_cc {

constexpr Timeout kLong{60'000};
constexpr Timeout kShort{30};

inline RankGroup GroupOf(int rank, int size = 2) {
  RankGroup group{"g", {}, {}, size, rank};
  for (int member = 0; member < size; ++member) group.members.push_back(member);
  group.devices = group.members;
  return group;
}

inline CallPtr CallOf(const std::string& what, uint64_t number, int rank = 0,
                      Timeout timeout = kLong) {
  auto call = std::make_shared<GroupCall>();
  call->what = call->payload = what;
  call->number = number;
  call->rank = rank;
  call->meets = true;
  call->timeout = timeout;
  call->site = Line(rank);
  return call;
}

template <class Error>
std::string Thrown(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

inline void OnThreads(int ranks, const std::function<void(int)>& f) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(f, rank);
  for (std::thread& thread : threads) thread.join();
}

inline bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace xla_cc
