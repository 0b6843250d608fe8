// A rank's end of the conversation with its device process: requests, answers, and the end.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "pod/event.h"
#include "pod/failure.h"
#include "pod/process.h"
#include "pod/segments.h"
#include "pod/wire/channel.h"

namespace xla_cc::pod {

class Link {
 public:
  struct Answer {
    std::optional<Failure> failure;
    std::string_view body;  // for as long as the handler runs
    size_t so_far = 0;      // if not 0, it is no answer yet: so many bytes are in the segment
  };
  // On the thread that reads answers: it must not wait for another.
  using Handler = std::function<void(const Answer&)>;

  // Starts the device process, which is called `name` in messages. Throws.
  Link(const std::vector<std::string>& command, std::string name);
  // As Leave, without waiting for others.
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Says it, and does not wait. What is said when the device process has ended is lost: a request
  // is answered with how that ended.
  void Say(Kind kind, const Writer& body);
  void Ask(Kind kind, const Writer& body, Handler handler);
  // Waits. Throws what went wrong.
  std::string Call(Kind kind, const Writer& body);

  // For how long it may be stopped while something is asked. Then it is ended.
  void SetLimit(std::chrono::milliseconds limit) { limit_ = limit; }

  // A segment that the device process knows.
  Segment TakeSegment(size_t bytes);
  void ReturnSegment(int64_t id) { segments_.Return(id); }

  // An orderly end: the device process stays until those that need it have ended. True if it has.
  bool Leave(std::chrono::milliseconds patience);

  // How the device process ended, if it has.
  std::optional<Failure> lost() const;

 private:
  void Read(int theirs, const std::vector<std::string>& command, Occurrence& started);
  void Hear(const Channel::Received& received);
  void Send(MessageHead head, std::string_view body, int descriptor = -1);
  bool IsKeptWaiting() const;
  void Lose(Process& process, const std::string& why);
  const Handler* Find(uint64_t request) const;
  std::optional<Handler> Claim(uint64_t request);

  bool IsForked() const { return getpid() != owner_; }

  const pid_t owner_ = getpid();  // a child that it forks has the socket, and no thread of these
  const std::string name_;
  std::unique_ptr<Channel> channel_;
  SegmentPool segments_;
  mutable std::mutex mutex_;
  uint64_t last_request_ = 0;
  std::map<uint64_t, Handler> asked_;
  std::optional<Failure> lost_;
  std::string before_;  // what it said of other ranks
  std::condition_variable ended_;
  std::atomic<std::chrono::milliseconds> limit_{std::chrono::minutes(10)};
  std::atomic<bool> stops_ = false;
  std::atomic<int> sending_ = 0;  // threads
  std::thread reader_;
};

}  // namespace xla_cc::pod
