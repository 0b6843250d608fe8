// One end of the socket pair between a rank and its device process: whole messages, and
// descriptors.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "pod/wire/message.h"

namespace xla_cc::pod {

class Channel {
 public:
  explicit Channel(int socket) : socket_(socket) {}  // which it closes at its end
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // From any thread. False if the other end is gone.
  bool Send(MessageHead head, std::string_view body, int descriptor = -1);

  // Whether there is something to receive, or an end, within that time.
  bool Await(std::chrono::milliseconds patience);

  struct Received {
    MessageHead head;
    std::string body;
  };
  // From one thread. Nothing if the other end is gone.
  std::optional<Received> Receive();

  // Wakes who receives; nothing is sent or received from then on.
  void Shut();

 private:
  bool ReadAll(char* to, size_t size);

  const int socket_;
  std::mutex sending_;
};

}  // namespace xla_cc::pod
