// Messages from rank to rank: those of a pair are received in the order in which they are sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "pod/memory/region.h"

namespace xla_cc::pod::memory {

// From any thread.
class Messages {
 public:
  explicit Messages(Region& region) : region_(region) {}

  // These begin; the bytes have to stay until `Wait` has returned. Numbers are never 0.
  // `group` is the number of that in which both are: it has to be the same.
  uint64_t Send(int group, int to, const std::byte* bytes, size_t size);
  uint64_t Receive(int group, int from, std::byte* bytes, size_t size);
  // Until it has been sent, or received, and goes on with all others meanwhile.
  void Wait(uint64_t number);

 private:
  // Goes before a message.
  struct Announced {
    uint64_t group;
    uint64_t size;
  };
  struct Going {
    uint64_t number;
    std::byte* bytes;  // of one that is sent they are only read
    Announced what;
    size_t done = 0;
    bool announced = false;
  };
  using Queue = std::deque<Going>;

  // As far as it goes without waiting; whether it went.
  bool GoOn();
  bool Push(int to, Going& message);
  bool Pull(int from, Going& message);
  uint64_t Added(Queue& queue, std::byte* bytes, const Announced& what);
  template <typename Step>
  bool Go(std::map<int, Queue>& queues, const Step& step);

  Region& region_;
  std::mutex lock_;
  uint64_t last_ = 0;
  std::map<int, Queue> sent_, received_;  // by the other rank
  std::set<uint64_t> under_way_;
};

}  // namespace xla_cc::pod::memory
