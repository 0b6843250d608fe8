// How calls of torch.distributed on this thread are carried out.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

namespace xla_cc {

struct CallMode {
  // They stay in the graph until it is run for another reason.
  bool in_graph = false;
  // They wait before they return. Those of functional collectives do: torch keeps their Works by
  // the storage of the outputs, and XLA tensors have none.
  bool waits_at_once = false;
  // torch.compile captures what is issued, to run it later, or never: nothing of it is a call of
  // this rank yet.
  bool captures = false;
  // Lists are to be of one buffer: an error if they are not.
  bool one_buffer = false;
  // Both ends of each message are in this mode: it may be a node in their two graphs.
  bool messages = false;

  static CallMode OfThread();
};

// What a scope changes of it.
struct CallModeChange {
  std::optional<bool> in_graph;
  std::optional<bool> waits_at_once;
  std::optional<bool> captures;
  std::optional<bool> one_buffer;
  std::optional<bool> messages;
};

// A change for the life of this, on the thread that made it. Scopes may end in any order, and on
// any thread, as those of generators do: what others have changed stays.
class CallModeScope {
 public:
  explicit CallModeScope(const CallModeChange& change);
  ~CallModeScope();
  CallModeScope(const CallModeScope&) = delete;
  CallModeScope& operator=(const CallModeScope&) = delete;

  struct Entry {
    const CallModeChange change;
    std::atomic<bool> ended{false};
  };

 private:
  const std::shared_ptr<Entry> entry_;
};

}  // namespace xla_cc
