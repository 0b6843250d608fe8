#include "torch_xla_cc/threads/bind.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "torch_xla_cc/call_site.h"
#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/gil.h"
#include "torch_xla_cc/graph/attach.h"
#include "torch_xla_cc/graph/noted_calls.h"
#include "torch_xla_cc/graph/op_gate.h"
#include "torch_xla_cc/graph/target.h"
#include "torch_xla_cc/graph/tokens.h"
#include "torch_xla_cc/groupcall/flight_recorder.h"
#include "torch_xla_cc/python_side.h"
#include "torch_xla_cc/threads/compile_gate.h"
#include "torch_xla_cc/threads/fallbacks.h"
#include "torch_xla_cc/threads/read_hooks.h"
#include "torch_xla_cc/threads/world.h"

namespace xla_cc {
namespace {

std::shared_ptr<World> Require() {
  std::shared_ptr<World> world = World::OfThread();
  if (!world) World::Outside().Throw();
  return world;
}

// The rank's turn, for as long as what is returned is kept. Others need the interpreter lock to end
// theirs.
std::shared_ptr<void> TakeTurn(World& world, int64_t rank) {
  std::optional<World::Turn> turn = world.TakeTurn(rank, false);
  if (!turn) turn.emplace(Unlocked([&] { return *world.TakeTurn(rank, true); }));
  return std::make_shared<World::Turn>(std::move(*turn));
}

// While it is closed, another thread may run what this process has in its graph.
class ClosedGate {
 public:
  void Close() {
    gate_ = std::make_unique<OpGate>();
    made_ = TensorsMade();
  }
  void Open() {
    turn_.reset();
    gate_.reset();
  }
  // Holds other threads up, but for one that has the chain, for which it waits.
  void Park() {
    OpGate::Park();
    turn_ = std::make_unique<ChainTurn>();
  }
  // Whether for so long nobody does anything with XLA tensors, or tries to.
  bool IsQuiet(int64_t milliseconds) const {
    const bool quiet = gate_->IsQuiet(std::chrono::milliseconds(milliseconds));
    return quiet && made_ + 1 == TensorsMade();  // which counts itself
  }

 private:
  std::unique_ptr<OpGate> gate_;
  std::unique_ptr<ChainTurn> turn_;
  int64_t made_ = 0;
};

// What runs is of another launch than this thread's.
void RequireNotOutlived() {
  if (World::Outlived()) World::Outside().Throw();
}

// What a rank has in its graph when it is told of a failure: its peers will not run theirs.
void DropFailed(int64_t rank) {
  if (!World::OfThread() || World::Outlived()) return;
  try {
    Python().drop_pending(rank);
  } catch (py::error_already_set& error) {
    // That ranks disagreed is what is told; and who stops a rank meanwhile does so again.
    if (error.matches(PyExc_Exception)) {
      error.discard_as_unraisable("torch_xla_cc: after ranks disagreed");
    }
  }
}

void RequireOwnThread(World& world, int64_t rank, const std::string& what, const Site& site) {
  if (const Failure failure = world.RequireOwnThread(rank, what, site)) failure.Throw();
}

// The rank's turn, in which the call becomes a part of its graph.
std::shared_ptr<void> IssueOrThrow(int64_t rank, IssuedCall issued) {
  RequireNotOutlived();
  const std::shared_ptr<World> world = World::OfThread();
  if (world) RequireOwnThread(*world, rank, issued.lowered->name, issued.site);
  std::shared_ptr<void> turn = world ? TakeTurn(*world, rank) : nullptr;
  const Failure failure = world ? world->Issue(rank, std::move(issued)) : World::Outside();
  if (!failure) return turn;
  DropFailed(rank);
  failure.Throw();
}

// The collectives of a graph that torch.compile has captured.
struct Program {
  std::vector<IssuedCall> calls;
  std::vector<World::Members> groups;  // of the calls: they may have ended when it runs
};

// What this rank has traced into a graph in which so many nodes are ours. A collective whose result
// nothing uses is in none. Each takes the token of the one before, so those are the last ones.
Program TracedProgram(int64_t rank, size_t nodes) {
  const std::shared_ptr<World> world = Require();
  std::vector<IssuedCall> calls = world->Pending(rank);
  const auto makes_node = [](const IssuedCall& call) {
    return !call.lowered->unchanged && !call.lowered->live.empty();
  };
  const auto chained = [&](const IssuedCall& call) {
    return !makes_node(call) || call.lowered->takes_token;
  };
  size_t traced = std::count_if(calls.begin(), calls.end(), makes_node);
  if (traced < nodes || (traced > nodes && !std::all_of(calls.begin(), calls.end(), chained))) {
    throw std::runtime_error("torch.compile: the graph has " + std::to_string(nodes) +
                             " collectives of the " + std::to_string(traced) +
                             " that were traced, and it cannot be told which. Return what each "
                             "gives, or compile with backend=\"aot_eager\"");
  }
  for (; traced > nodes; calls.pop_back()) traced -= makes_node(calls.back()) ? 1 : 0;
  Program program{std::move(calls), {}};
  for (const IssuedCall& call : program.calls) {
    program.groups.push_back(world->MembersOf(call.group));
  }
  return program;
}

// Meets with what `hash` gives, and hands the graph over by calling `run`, and `wait` if it is not
// None. A program that was captured is issued before. All in one turn; from the meeting on in one
// call, so that no asynchronous exception (ctrl-C, launch stopping the ranks) comes between: the
// peers are in their collectives by then.
void Meet(int64_t rank, const py::function& hash, const py::object& run, const py::object& wait,
          const Program* program) {
  RequireNotOutlived();
  const std::shared_ptr<World> world = Require();
  const Site site = CurrentSite();
  const std::shared_ptr<void> turn = TakeTurn(*world, rank);
  if (program != nullptr) {
    for (size_t i = 0; i < program->calls.size(); ++i) {
      IssuedCall call = program->calls[i];
      call.group = world->NumberOf(rank, program->groups[i], call.group);
      IssueOrThrow(rank, std::move(call));
    }
  }
  std::string program_hash;
  try {
    if (world->HasPending(rank)) program_hash = hash().cast<std::string>();
  } catch (...) {
    if (program != nullptr) world->Lost(rank);  // what was issued is in no graph
    throw;
  }
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
  graph.compiled = program != nullptr;
  if (!wait.is_none()) graph.wait = [&] { call(wait); };
  Failure failure;
  {
    const py::gil_scoped_release unlocked;
    failure = world->Meet(rank, site, program_hash, graph);
  }
  // The token of a graph that did not run is none: the next collective starts a new chain.
  // Of a failure it is what tells who loses the graph that there is one.
  if (raised && !World::Outlived()) ResetToken(rank);
  if (raised) throw py::error_already_set(*raised);
  if (failure) failure.Throw();
}

std::shared_ptr<World> BeginWorld(int64_t size, double timeout_s) {
  if (size < 1) throw BadValue("World: size must be at least 1");
  if (std::isnan(timeout_s)) throw BadValue("World: timeout_s is not a number");
  ResetTokens();
  Recorder::Get().Clear();
  const double most = std::chrono::duration<double>(kLongest).count();
  const double seconds = std::clamp(timeout_s, 0.0, most);
  return World::Begin(size, Timeout(static_cast<int64_t>(seconds * 1e3)));
}

// What a rank's thread asks of its world, if it has one.
template <class Result, class... Arguments>
auto Ask(Result (World::*method)(int64_t), Result without) {
  return [method, without](int64_t rank) {
    const std::shared_ptr<World> world = World::OfThread();
    return world ? (*world.*method)(rank) : without;
  };
}

void Drop(int64_t rank) {
  if (World::Outlived()) return;
  if (const std::shared_ptr<World> world = World::OfThread()) world->Drop(rank);
  ResetToken(rank);
}

// A rank's turn as a context of Python.
class RankTurn {
 public:
  explicit RankTurn(int64_t rank) : rank_(rank) {}
  void Enter() {
    RequireNotOutlived();
    if (const std::shared_ptr<World> world = World::OfThread()) turn_ = TakeTurn(*world, rank_);
    RequireNotOutlived();  // nor while this waited
  }
  void Exit() { turn_.reset(); }

 private:
  const int64_t rank_;
  std::shared_ptr<void> turn_;
};

// Calls Python before a rank with pending collectives reads, or one that traces for a target.
void Open(py::function before_read) {
  // Let go by a thread that may not hold the interpreter lock.
  const std::shared_ptr<py::function> function(new py::function(std::move(before_read)),
                                               [](py::function* dropped) {
                                                 if (!Py_IsInitialized()) return;
                                                 const py::gil_scoped_acquire locked;
                                                 delete dropped;
                                               });
  OpenReadHooks([function](int64_t rank, const std::vector<at::Tensor>& read) -> Reading {
    const std::shared_ptr<World> world = World::OfThread();
    std::shared_ptr<void> turn = world ? TakeTurn(*world, rank) : nullptr;
    const bool asks =
        world ? world->HasPending(rank) || !world->MayIssue(rank)
              : AnyToken() || NotedCalls::Get().size() > 0;  // of a pod, of processes that agree
    if (ThreadTarget() || World::Outlived() || asks) {
      const py::gil_scoped_acquire locked;
      const py::object instead = (*function)(rank, *py::cast(read).cast<py::list>());
      if (!instead.is_none()) return {turn, instead.cast<std::vector<at::Tensor>>()};
    }
    return {turn, {}};
  });
}

}  // namespace

void BindThreads(py::module_& m) {
  using namespace py::literals;
  SetIssueHook([](int64_t rank, const PlanPtr& plan, const Site& site, uint64_t group) {
    return IssueOrThrow(rank, {plan->shared, site, group});
  });
  py::class_<World, std::shared_ptr<World>>(m, "World")
      .def(py::init(&BeginWorld), "size"_a, "timeout_s"_a)
      .def("enter", &World::Enter)
      .def("finish", [](World& world, int64_t rank) { world.Finish(rank, CurrentSite()); })
      .def("fail", &World::Fail)
      .def("abort", &World::Abort)
      .def("end", [](World& world) {
        world.End();
        ResetTokens();
      });
  m.def("ranks_pending", Ask(&World::HasPending, false));
  m.def("ranks_idle", Ask(&World::IsIdle, false));
  m.def("ranks_final", Ask(&World::IsFinal, false));
  m.def("ranks_losses", Ask(&World::Losses, int64_t{0}));
  m.def("ranks_drop", &Drop);
  m.def("ranks_lost", [](int64_t rank) {
    if (World::Outlived()) return;
    if (const std::shared_ptr<World> world = World::OfThread()) world->Lost(rank);
  });
  m.def("ranks_outlived", &World::Outlived);
  m.def("ranks_may_issue", Ask(&World::MayIssue, true));
  m.def("require_own_thread", [](int64_t rank) {
    const std::shared_ptr<World> world = World::OfThread();
    if (world) RequireOwnThread(*world, rank, "a step", CurrentSite());
  });
  m.def("require_not_outlived", &RequireNotOutlived);
  py::class_<RankTurn>(m, "rank_turn")
      .def(py::init<int64_t>())
      .def("__enter__", &RankTurn::Enter)
      .def("__exit__", [](RankTurn& turn, const py::args&) { turn.Exit(); });
  m.def("ranks_check", [](int64_t rank) {
    const std::shared_ptr<World> world = World::OfThread();
    const bool own = world && world->MayIssue(rank);  // or it would never be told
    const Failure failure = own ? world->TakeFailure(rank) : Failure();
    if (!failure) return;
    DropFailed(rank);
    failure.Throw();
  });
  py::class_<ClosedGate>(m, "op_gate")
      .def(py::init<>())
      .def(
          "__enter__",
          [](ClosedGate& gate) -> ClosedGate& {
            gate.Close();
            return gate;
          },
          py::return_value_policy::reference)
      .def("__exit__", [](ClosedGate& gate, const py::args&) { gate.Open(); })
      .def("park", &ClosedGate::Park)
      .def("is_quiet", &ClosedGate::IsQuiet, py::call_guard<py::gil_scoped_release>());
  m.def("ranks_meet", &Meet, "rank"_a, "hash"_a, "run"_a, "wait"_a, "program"_a = py::none());
  py::class_<Program>(m, "Program").def("__len__", [](const Program& program) {
    return program.calls.size();
  });
  m.def("traced_program", &TracedProgram);
  m.def("token", &Token);
  m.def("set_token", &SetToken);
  m.def("reads", &Reads);
  m.def("reads_under_way", &ReadsUnderWay);
  m.def("op_gate_pass", &OpGate::Pass);
  m.def("name_fallbacks", &NameFallbacks);
  m.def("open_read_hooks", &Open);
  m.def("close_read_hooks", &CloseReadHooks);
}

}  // namespace xla_cc
