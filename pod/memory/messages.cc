#include "pod/memory/messages.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace xla_cc::pod::memory {
namespace {

// Copies to or from the place of the `at`th byte of a ring, which may be in two pieces.
template <typename Copied>
void Around(size_t ring, uint64_t at, size_t bytes, const Copied& copied) {
  const size_t place = at % ring;
  const size_t first = std::min(bytes, ring - place);
  copied(place, 0, first);
  if (bytes > first) copied(0, first, bytes - first);
}

std::string Said(const Message& message) {
  const bool permute = message.kind == Message::Kind::kPermute;
  return std::to_string(message.size) + " bytes of " + (permute ? "a permute" : "an all_to_all") +
         " in group " + std::to_string(message.group);
}

}  // namespace

uint64_t Messages::Send(const Message& what, int to, const std::byte* bytes) {
  const std::lock_guard<std::mutex> lock(lock_);
  if (gone_.count(to) != 0) return ++last_;
  const uint64_t number = Added(sent_[to], const_cast<std::byte*>(bytes), what);
  GoOn();
  return number;
}

uint64_t Messages::Receive(const Message& what, int from, std::byte* bytes) {
  const std::lock_guard<std::mutex> lock(lock_);
  return Added(received_[from], bytes, what);
}

void Messages::Wait(uint64_t number) {
  if (Detached(number)) return;
  const auto is_done = [&] {
    const std::lock_guard<std::mutex> lock(lock_);
    while (under_way_.count(number) != 0) {
      if (!GoOn()) return false;
    }
    return true;
  };
  if (memory::Wait(region_.BellOf(region_.rank()), region_.ended(), is_done)) return;
  const std::lock_guard<std::mutex> lock(lock_);
  GoOn();
}

bool Messages::Detached(uint64_t number) {
  const std::lock_guard<std::mutex> lock(lock_);
  const auto has = [](const auto& queue) { return !queue.second.empty(); };
  if (std::any_of(received_.begin(), received_.end(), has)) return false;
  GoOn();
  for (auto& [to, queue] : sent_) {
    for (Going& one : queue) {
      if (one.number != number || one.done == one.what.size) continue;
      one.copy.assign(one.bytes + one.done, one.bytes + one.what.size);
      one.copied_from = one.done;
      copied_ += one.copy.size();
      if (!sends_on_.joinable()) sends_on_ = std::thread([this] { SendOn(); });
      copies_.notify_one();
      return true;
    }
  }
  return under_way_.count(number) == 0;
}

void Messages::SendOn() {
  const auto goes_on = [this] {
    const std::lock_guard<std::mutex> lock(lock_);
    while (copied_ != 0 && !region_.ended() && !stops_) {
      if (!Go(sent_, [this](int to, Going& one) { return Push(to, one); })) return false;
    }
    return true;
  };
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(lock_);
      copies_.wait(lock, [this] { return copied_ != 0 || stops_; });
      if (stops_) return;
    }
    memory::Wait(region_.BellOf(region_.rank()), region_.ended(), goes_on);
    if (region_.ended()) return;
  }
}

Messages::~Messages() {
  {
    const std::lock_guard<std::mutex> lock(lock_);
    stops_ = true;
    copies_.notify_one();
  }
  if (sends_on_.joinable()) sends_on_.join();
}

bool Messages::WaitForRoom(size_t bytes, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  bool has_room = false;
  memory::Wait(region_.BellOf(region_.rank()), region_.ended(), [&] {
    const std::lock_guard<std::mutex> lock(lock_);
    has_room = copied_ <= bytes;
    return has_room || std::chrono::steady_clock::now() > end;
  });
  return has_room || region_.ended();
}

void Messages::Drop(int to) {
  const std::lock_guard<std::mutex> lock(lock_);
  gone_.insert(to);
  for (const Going& one : sent_[to]) Ended(one);
  sent_[to].clear();
}

void Messages::Ended(const Going& first) {
  under_way_.erase(first.number);
  copied_ -= first.copy.size();
}

uint64_t Messages::Added(Queue& queue, std::byte* bytes, const Message& what) {
  queue.push_back({++last_, bytes, what});
  under_way_.insert(last_);
  return last_;
}

bool Messages::GoOn() {
  if (region_.ended()) {
    sent_.clear();
    received_.clear();
    copied_ = 0;
    region_.FailEnded();
  }
  const bool sent = Go(sent_, [this](int to, Going& one) { return Push(to, one); });
  return Go(received_, [this](int from, Going& one) { return Pull(from, one); }) || sent;
}

template <typename Step>
bool Messages::Go(std::map<int, Queue>& queues, const Step& step) {
  bool went = false;
  for (auto& [rank, queue] : queues) {
    while (!queue.empty() && step(rank, queue.front())) {
      went = true;
      const Going& first = queue.front();
      if (!first.announced || first.done < first.what.size) continue;
      Ended(first);
      queue.pop_front();
    }
  }
  return went;
}

bool Messages::Push(int to, Going& message) {
  RingState& head = region_.RingHead(region_.rank(), to);
  std::byte* ring = region_.RingBytes(region_.rank(), to);
  const uint64_t written = head.written;
  size_t room = region_.ring_bytes() - (written - head.read);
  if (!message.announced && room < sizeof(Message)) return false;
  uint64_t now = written;
  const auto put = [&](const std::byte* from, size_t bytes) {
    Around(region_.ring_bytes(), now, bytes, [&](size_t place, size_t offset, size_t count) {
      std::memcpy(ring + place, from + offset, count);
    });
    now += bytes;
    room -= bytes;
  };
  if (!message.announced) {
    put(reinterpret_cast<const std::byte*>(&message.what), sizeof(Message));
    message.announced = true;
  }
  const size_t count = std::min(room, message.what.size - message.done);
  const bool is_copied = !message.copy.empty();
  const std::byte* rest = is_copied ? message.copy.data() : message.bytes + message.done;
  if (is_copied) rest += message.done - message.copied_from;
  if (count != 0) put(rest, count);
  message.done += count;
  if (now == written) return false;
  head.written = now;
  Ring(region_.BellOf(to));
  return true;
}

bool Messages::Pull(int from, Going& message) {
  RingState& head = region_.RingHead(from, region_.rank());
  const std::byte* ring = region_.RingBytes(from, region_.rank());
  const uint64_t read = head.read;
  size_t there = head.written - read;
  uint64_t now = read;
  const auto take = [&](std::byte* to, size_t bytes) {
    Around(region_.ring_bytes(), now, bytes, [&](size_t place, size_t offset, size_t count) {
      std::memcpy(to + offset, ring + place, count);
    });
    now += bytes;
    there -= bytes;
  };
  if (!message.announced) {
    if (there < sizeof(Message)) return false;
    Message sent{};
    take(reinterpret_cast<std::byte*>(&sent), sizeof(sent));
    if (std::memcmp(&sent, &message.what, sizeof(sent)) != 0) {
      throw Failure("rank " + std::to_string(region_.rank()) + " receives of rank " +
                    std::to_string(from) + " " + Said(message.what) + ", and that one sends " +
                    Said(sent) + ": ranks have to call the same in the same order");
    }
    message.announced = true;
  }
  const size_t count = std::min(there, message.what.size - message.done);
  if (count != 0) take(message.bytes + message.done, count);
  message.done += count;
  if (now == read) return false;
  head.read = now;
  Ring(region_.BellOf(from));
  return true;
}

}  // namespace xla_cc::pod::memory
