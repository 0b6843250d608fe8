#include "torch_xla_cc/bind_ranks.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <vector>

#include "torch_xla_cc/arguments.h"
#include "torch_xla_cc/door.h"
#include "torch_xla_cc/graph.h"
#include "torch_xla_cc/ranks.h"

namespace xla_cc {
namespace {

void ThrowIf(const Failure& failure) {
  if (failure) failure.Throw();
}

// The collectives of a graph that torch.compile has captured.
struct Program {
  std::vector<Ranks::Issued> calls;
};

// What this rank has traced into a graph in which so many nodes are ours. A collective whose result
// nothing uses is in none. Each takes the token of the one before, so those are the last ones.
Program TracedProgram(int64_t rank, size_t nodes) {
  std::vector<Ranks::Issued> calls = Ranks::Get().Pending(rank);
  const auto makes_node = [](const Ranks::Issued& call) {
    return !call.plan->lowered.unchanged && !call.plan->lowered.live.empty();
  };
  const auto chained = [&](const Ranks::Issued& call) {
    return !makes_node(call) || call.plan->lowered.takes_token;
  };
  size_t traced = std::count_if(calls.begin(), calls.end(), makes_node);
  if (traced < nodes || (traced > nodes && !std::all_of(calls.begin(), calls.end(), chained))) {
    throw std::runtime_error("torch.compile: the graph has " + std::to_string(nodes) +
                             " collectives of the " + std::to_string(traced) +
                             " that were traced, and it cannot be told which. Return what each "
                             "gives, or compile with backend=\"aot_eager\"");
  }
  for (; traced > nodes; calls.pop_back()) traced -= makes_node(calls.back()) ? 1 : 0;
  return {std::move(calls)};
}

void IssueProgram(int64_t rank, const Program& program) {
  for (const auto& [plan, site] : program.calls) {
    if (const Failure failure = Ranks::Get().Issue(rank, plan, site)) {
      ResetToken(rank);
      failure.Throw();
    }
  }
}

// Meets, and hands the graph over by calling `run`, and `wait` if it is not None. One call, so that
// no asynchronous exception (ctrl-C, launch stopping the ranks) comes between: the peers are in
// their collectives by then.
void MeetRanks(int64_t rank, const std::string& program_hash, const py::object& run,
               const py::object& wait, bool compiled) {
  // Other threads may call these two; what they raise is raised by this one.
  HandOver graph;
  std::optional<py::error_already_set> raised;
  const auto call = [&](const py::object& function) -> std::string {
    const py::gil_scoped_acquire locked;
    try {
      function();
      return "";
    } catch (py::error_already_set& error) {
      if (!graph.turned_away) raised = error;
      return error.what();
    }
  };
  graph.run = [&] { return call(run); };
  graph.compiled = compiled;
  if (!wait.is_none()) graph.wait = [&] { call(wait); };
  const Site site = CurrentSite();
  Failure failure;
  {
    const py::gil_scoped_release unlocked;
    failure = Ranks::Get().Meet(rank, site, program_hash, graph);
  }
  // The token of a graph that did not run is none: the next collective starts a new chain.
  if (raised || failure) ResetToken(rank);
  if (raised) throw py::error_already_set(*raised);
  ThrowIf(failure);
}

}  // namespace

void BindRanks(py::module_& m) {
  m.def("ranks_start", [](int64_t world_size, double timeout_s) {
    if (world_size < 1) throw BadValue("ranks_start: world_size must be at least 1");
    ResetTokens();
    Ranks::Get().Start(world_size,
                       std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1e3)));
  });
  m.def("ranks_stop", [] {
    Ranks::Get().Stop();
    ResetTokens();
  });
  m.def("ranks_finish", [](int64_t rank) { Ranks::Get().Finish(rank, CurrentSite()); });
  m.def("ranks_fail",
        [](int64_t rank, const std::string& message) { Ranks::Get().Fail(rank, message); });
  m.def("ranks_abort", [](const std::string& message) { Ranks::Get().Abort(message); });
  m.def("ranks_check", [](int64_t rank) { ThrowIf(Ranks::Get().TakeFailure(rank)); });
  m.def("ranks_pending", [](int64_t rank) { return Ranks::Get().HasPending(rank); });
  m.def("ranks_drop", [](int64_t rank) {
    Ranks::Get().Drop(rank);
    ResetToken(rank);
  });
  m.def("ranks_losses", [](int64_t rank) { return Ranks::Get().Losses(rank); });
  m.def("ranks_idle", [](int64_t rank) { return Ranks::Get().IsIdle(rank); });
  using namespace py::literals;
  m.def("ranks_meet", &MeetRanks, "rank"_a, "program_hash"_a, "run"_a, "wait"_a,
        "compiled"_a = false);
  py::class_<Program>(m, "Program").def("__len__", [](const Program& program) {
    return program.calls.size();
  });
  m.def("traced_program", &TracedProgram);
  m.def("issue_program", &IssueProgram);
  m.def("reads", &Reads);
  m.def("token", &Token);
  m.def("open_door", [](py::function before_read) {
    // Kept for good: kernels on other threads may still be in it when the door closes.
    auto* function = new py::function(std::move(before_read));
    OpenDoor([function](int64_t rank) {
      if (!ThreadTarget() && !Ranks::Get().HasPending(rank)) return;
      const py::gil_scoped_acquire locked;
      (*function)(rank);
    });
  });
  m.def("close_door", &CloseDoor);
}

}  // namespace xla_cc
