#include "pod/link.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "pod/wanted.h"

namespace xla_cc::pod {
namespace {

using namespace std::chrono_literals;

constexpr size_t kKeptBytes = size_t{256} << 20;  // of segments that nobody uses
constexpr auto kLook = 1000ms;
constexpr int kSocketBuffer = 1 << 20;

Failure OfFork() {
  return {abi::Code::kFailedPrecondition,
          "this process was forked from a rank of the pod, whose device it cannot use: use it in "
          "the rank, or start processes by spawn"};
}

}  // namespace

Link::Link(const std::vector<std::string>& command, std::string name)
    : name_(std::move(name)), segments_(kKeptBytes) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Failure(abi::Code::kUnavailable,
                  std::string("the pod cannot make a socket pair: ") + std::strerror(errno));
  }
  for (const int end : ends) {
    setsockopt(end, SOL_SOCKET, SO_SNDBUF, &kSocketBuffer, sizeof(kSocketBuffer));
  }
  channel_ = std::make_unique<Channel>(ends[0]);
  Occurrence started;
  reader_ =
      std::thread([this, theirs = ends[1], &command, &started] { Read(theirs, command, started); });
  if (const auto failure = started.Wait()) {
    reader_.join();
    throw *failure;
  }
}

Link::~Link() {
  if (IsForked()) {
    reader_.detach();
    return;
  }
  Leave(0ms);
  channel_->Shut();
  if (reader_.joinable()) reader_.join();
}

bool Link::Leave(std::chrono::milliseconds patience) {
  if (IsForked()) return true;
  if (!stops_.exchange(true)) channel_->Send({0, Kind::kStop, 0, 0}, {});
  std::unique_lock lock(mutex_);
  return ended_.wait_for(lock, patience, [this] { return lost_.has_value(); });
}

void Link::Say(Kind kind, const Writer& body) {
  if (IsForked()) return;  // the buffers are the rank's
  Send({0, kind, 0, 0}, body.bytes());
}

// Where the socket is full it waits for the device process, as who asks does.
void Link::Send(MessageHead head, std::string_view body, int descriptor) {
  ++sending_;
  channel_->Send(head, body, descriptor);
  --sending_;
}

void Link::Ask(Kind kind, const Writer& body, Handler handler) {
  if (IsForked()) {
    handler({OfFork(), {}, 0});
    return;
  }
  uint64_t request;
  {
    std::unique_lock lock(mutex_);
    if (lost_) {
      lock.unlock();
      handler({lost_, {}, 0});
      return;
    }
    request = ++last_request_;
    asked_.emplace(request, std::move(handler));
  }
  // If it cannot be sent, the reader notices the same, and answers for the device process.
  Send({0, kind, 0, request}, body.bytes());
}

std::string Link::Call(Kind kind, const Writer& body) {
  struct Reply {
    Occurrence happened;
    std::string body;
  };
  const auto reply = std::make_shared<Reply>();
  Ask(kind, body, [reply](const Answer& answer) {
    reply->body = answer.body;
    reply->happened.Happen(answer.failure);
  });
  if (const auto failure = reply->happened.Wait()) throw *failure;
  return std::move(reply->body);
}

Segment Link::TakeSegment(size_t bytes) {
  if (IsForked()) throw OfFork();
  for (const int64_t dropped : segments_.Drop()) Say(Kind::kDropSegment, Writer().Int(dropped));
  Segment segment = segments_.Take(bytes);
  if (segment.is_new) {
    Writer body;
    body.Int(segment.id).Int(static_cast<int64_t>(segment.size));
    Send({0, Kind::kSegment, 0, 0}, body.bytes(), segment.descriptor);
    close(segment.descriptor);
    segment.descriptor = -1;
  }
  return segment;
}

std::optional<Failure> Link::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

// Both of the process's ends are here, because the kernel ends it with the thread that started it.
void Link::Read(int theirs, const std::vector<std::string>& command, Occurrence& started) {
  std::optional<Process> process;
  Occurrence::Outcome failure;
  try {
    process = Process::Start(command, theirs);
  } catch (const Failure& refused) {
    failure = refused;
  }
  close(theirs);
  started.Happen(failure);  // who waits for it goes on, and these two arguments end
  if (failure) return;
  auto stopped = 0ms;
  while (stopped < limit_.load()) {
    if (!channel_->Await(kLook)) {
      stopped = IsKeptWaiting() && process->IsStopped() ? stopped + kLook : 0ms;
    } else if (const auto received = channel_->Receive()) {
      stopped = 0ms;
      Hear(*received);
    } else {
      Lose(*process, "");
      return;
    }
  }
  Lose(*process, "was stopped (SIGSTOP) for " + std::to_string(stopped / 1s) + " s, and ");
}

bool Link::IsKeptWaiting() const {
  const std::lock_guard lock(mutex_);
  return stops_ || sending_ > 0 || !asked_.empty();
}

void Link::Hear(const Channel::Received& received) {
  try {
    Reader body(received.body);
    if (received.head.kind == Kind::kReleased) {
      segments_.Return(body.Int());
      return;
    }
    if (received.head.kind == Kind::kWanted) {
      NoteWanted();
      return;
    }
    if (received.head.kind == Kind::kLost) {
      const std::lock_guard lock(mutex_);
      if (before_.empty()) before_ = body.Text();
      return;
    }
    if (received.head.kind == Kind::kPart) {
      const auto so_far = static_cast<size_t>(body.Int());
      if (so_far == 0) throw Failure(abi::Code::kInternal, "a part of nothing");
      if (const auto handler = Find(received.head.request)) (*handler)({{}, {}, so_far});
      return;
    }
    const auto handler = Claim(received.head.request);
    if (!handler) return;
    const auto code = static_cast<abi::Code>(body.Int());
    Answer answer;
    const std::string_view message = body.Text();
    if (code != abi::Code{}) answer.failure = Failure(code, std::string(message));
    answer.body = body.Text();
    (*handler)(answer);
  } catch (const Failure&) {
    channel_->Shut();  // nonsense: as if it had ended, which Lose() sees to
  }
}

void Link::Lose(Process& process, const std::string& why) {
  channel_->Shut();
  const std::string how = why + process.End(stops_ ? 2000ms : 1000ms);
  std::map<uint64_t, Handler> asked;
  std::string message = name_ + ", process " + std::to_string(process.pid()) + ", " + how;
  {
    const std::lock_guard lock(mutex_);
    if (!before_.empty()) {
      message += ", after " + before_;
    } else if (how.find("Aborted") != std::string::npos) {
      message += " (as jaxlib ends when the device process of rank 0 has gone)";
    }
  }
  const Failure lost(
      abi::Code::kUnavailable,
      message + ". What it held is lost: start the job again. Its last words are on stderr");
  {
    const std::lock_guard lock(mutex_);
    lost_ = lost;
    ended_.notify_all();
    asked.swap(asked_);
  }
  for (const auto& [request, handler] : asked) handler({lost, {}, 0});
}

// To be called again. It stays: only the reader takes handlers away.
const Link::Handler* Link::Find(uint64_t request) const {
  const std::lock_guard lock(mutex_);
  const auto found = asked_.find(request);
  return found == asked_.end() ? nullptr : &found->second;
}

std::optional<Link::Handler> Link::Claim(uint64_t request) {
  const std::lock_guard lock(mutex_);
  const auto found = asked_.find(request);
  if (found == asked_.end()) return {};
  Handler handler = std::move(found->second);
  asked_.erase(found);
  return handler;
}

}  // namespace xla_cc::pod
