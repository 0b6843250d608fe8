// Messages from rank to rank: those of a pair are received in the order in which they are sent,
// also where they are of several groups. (The programs of a process run one after the other.)
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "pod/memory/region.h"

namespace xla_cc::pod::memory {

// What it is; it goes before the bytes.
struct Message {
  enum class Kind : uint64_t { kPermute, kAllToAll };
  Kind kind;
  uint64_t group;  // its number
  uint64_t size;
};

// From any thread.
class Messages {
 public:
  explicit Messages(Region& region) : region_(region) {}
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  // These begin; the bytes have to stay until `Wait` has returned. Numbers are never 0.
  // `what` has to be the same on both.
  uint64_t Send(const Message& what, int to, const std::byte* bytes);
  uint64_t Receive(const Message& what, int from, std::byte* bytes);
  // Until it has been sent, or received, and goes on with all others meanwhile. If nothing is left
  // to be received, what is sent does not wait for its receiver: the rest, which has no room, is
  // copied, and goes on behind the program.
  void Wait(uint64_t number);
  // Until no more bytes than that are copied and not yet sent, or all has ended. False if that has
  // not come in this time.
  bool WaitForRoom(size_t bytes, std::chrono::milliseconds limit);
  // Nobody receives there any more: what is, and will be, sent there goes nowhere.
  void Drop(int to);

 private:
  struct Going {
    uint64_t number;
    std::byte* bytes;  // of one that is sent they are only read
    Message what;
    size_t done = 0;
    bool announced = false;
    std::vector<std::byte> copy{};  // of what was left of the owner's bytes, if they are not used
    size_t copied_from = 0;         // where that begins
  };
  using Queue = std::deque<Going>;

  // As far as it goes without waiting; whether it went. Where all has ended it lets go of the
  // bytes, which are their owners' again, and throws.
  bool GoOn();
  bool Push(int to, Going& message);
  bool Pull(int from, Going& message);
  // Whether this one needs its owner's bytes no more.
  bool Detached(uint64_t number);
  // On a thread of its own, until all ends. It receives nothing.
  void SendOn();
  // One of a queue is through.
  void Ended(const Going& first);
  uint64_t Added(Queue& queue, std::byte* bytes, const Message& what);
  template <typename Step>
  bool Go(std::map<int, Queue>& queues, const Step& step);

  Region& region_;
  std::mutex lock_;
  uint64_t last_ = 0;
  std::map<int, Queue> sent_, received_;  // by the other rank
  std::set<uint64_t> under_way_;
  std::set<int> gone_;
  size_t copied_ = 0;  // bytes of those that have been copied
  bool stops_ = false;
  std::condition_variable copies_;
  std::thread sends_on_;
};

}  // namespace xla_cc::pod::memory
