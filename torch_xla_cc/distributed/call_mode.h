// How calls of torch.distributed on this thread are carried out.
#pragma once

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

  static const CallMode& OfThread();
};

// Another mode for the life of this, which begins and ends on one thread, the last begun first.
class CallModeScope {
 public:
  explicit CallModeScope(CallMode mode);
  ~CallModeScope();
  CallModeScope(const CallModeScope&) = delete;
  CallModeScope& operator=(const CallModeScope&) = delete;

 private:
  const CallMode before_;
};

}  // namespace xla_cc
