#include "torch_xla_cc/distributed/run_pending.h"

#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>

#include "torch_xla_cc/graph/noted_calls.h"
#include "torch_xla_cc/graph/target.h"
#include "torch_xla_cc/graph/tokens.h"
#include "torch_xla_cc/python_side.h"
#include "torch_xla_cc/threads/world.h"

namespace xla_cc {

bool Agreeing() { return NotedCalls::Get().on(); }
bool GaveUp() { return NotedCalls::Get().gave_up(); }

bool LongPending() { return LongestChain() >= NotedCalls::kMost; }

void RunPendingBeforeWaiting() {
  // None is pending, as between processes on CPU; or others ask for it, and are answered.
  if (!AnyToken() || Agreeing()) return;
  const py::gil_scoped_acquire locked;
  if (!CurrentTarget().RanksAreThreads()) CallPython(Python().run_graph);
}

void RunPendingOnce(std::atomic<bool>& asked) {
  if (!asked.exchange(true)) RunPendingBeforeWaiting();
}

void RunPendingAtEnd(const RankGroup& group) {
  const py::gil_scoped_acquire locked;
  try {
    RunPendingBeforeWaiting();  // nothing, where ranks agree
    if (Agreeing() || GaveUp()) {
      CallPython(Python().run_at_end, group.name == NotedCalls::Get().group());
    }
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("torch_xla_cc: what was pending at the end of a group");
  } catch (const std::exception& error) {
    TORCH_WARN("torch_xla_cc: what was pending at the end of a group: ", error.what());
  }
  if (group.name == NotedCalls::Get().group()) NotedCalls::Get().Stop();
}

void RunPending(const RankGroup& group, Timeout timeout) {
  if (group.size() == 1) return;  // nobody waits for it
  const py::gil_scoped_acquire locked;
  if (!CurrentTarget().RanksAreThreads()) {
    CallPython(Python().run_graph);
    return;
  }
  const std::shared_ptr<World> world = World::OfThread();
  if (!world) World::Outside().Throw();
  world->SetLimit(group.own(), timeout);
  const auto restore = c10::make_scope_exit([&] { world->SetLimit(group.own(), World::kNoLimit); });
  CallPython(Python().run_pending, group.own());
}

void DropPending(const RankGroup& group) {
  const py::gil_scoped_acquire locked;
  // A helper of a rank has another default device. Elsewhere than on threads the default is meant.
  try {
    Python().drop_pending(World::OfThread() ? py::cast(group.own()) : py::object(py::none()));
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("torch_xla_cc: after a call that failed");  // which is told
  }
}

}  // namespace xla_cc
