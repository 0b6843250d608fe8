#include "pod/wire/channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace xla_cc::pod {
namespace {

// Sends all of it; the descriptor goes with the first byte.
bool SendAll(int socket, iovec* parts, size_t count, int descriptor) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  while (count > 0) {
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    if (descriptor >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
    }
    ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    descriptor = -1;
    while (count > 0 && static_cast<size_t>(sent) >= parts->iov_len) {
      sent -= static_cast<ssize_t>(parts->iov_len);
      ++parts;
      --count;
    }
    if (count > 0) {
      parts->iov_base = static_cast<char*>(parts->iov_base) + sent;
      parts->iov_len -= static_cast<size_t>(sent);
    }
  }
  return true;
}

}  // namespace

Channel::~Channel() { close(socket_); }

bool Channel::Send(MessageHead head, std::string_view body, int descriptor) {
  head.size = body.size();
  iovec parts[] = {{&head, sizeof(head)}, {const_cast<char*>(body.data()), body.size()}};
  const std::lock_guard lock(sending_);
  return SendAll(socket_, parts, 2, descriptor);
}

bool Channel::Await(std::chrono::milliseconds patience) {
  pollfd wanted{socket_, POLLIN, 0};
  const auto until = std::chrono::steady_clock::now() + patience;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    const int ready = poll(&wanted, 1, std::max(0, static_cast<int>(left.count())));
    if (ready >= 0 || errno != EINTR) return ready != 0;
  }
}

std::optional<Channel::Received> Channel::Receive() {
  Received received;
  if (!ReadAll(reinterpret_cast<char*>(&received.head), sizeof(received.head))) return {};
  received.body.resize(received.head.size);
  if (!ReadAll(received.body.data(), received.body.size())) return {};
  return received;
}

void Channel::Shut() { shutdown(socket_, SHUT_RDWR); }

bool Channel::ReadAll(char* to, size_t size) {
  while (size > 0) {
    const ssize_t got = recv(socket_, to, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace xla_cc::pod
