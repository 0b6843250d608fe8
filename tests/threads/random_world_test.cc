// Random programs of ranks on real threads, of which one now and then does something else, comes
// late, ends, raises, or is stopped: every thread ends in time, who is right is told nothing, and
// who cannot go on is told why. (With sanitizers of memory; and once more with that of threads.)
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <thread>

#include "tests/dice/dice.h"
#include "tests/threads/fakes.h"
#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/threads/meeting.h"
#include "torch_xla_cc/threads/world.h"

namespace xla_cc {
namespace {

using std::chrono::milliseconds;

// Longer than anything here takes, on a machine that does other things: a thread that hangs.
constexpr std::chrono::seconds kHangs{120};
constexpr milliseconds kLong{60'000};
constexpr milliseconds kShort{40};

enum class Fault { kNone, kDiffers, kLeaves, kIsLate, kRaises, kCannotRun, kAborted, kEnded };
const std::vector<Fault> kFaults = {Fault::kNone,      Fault::kNone,    Fault::kDiffers,
                                    Fault::kLeaves,    Fault::kIsLate,  Fault::kRaises,
                                    Fault::kCannotRun, Fault::kAborted, Fault::kEnded};

// What all ranks do in one step: some all_reduces of groups, in one graph; or they meet beside it.
struct Step {
  std::vector<std::shared_ptr<const Lowered>> calls;
  bool beside = false;
  bool compiles = false;
  bool same_program = true;
};

struct Program {
  int64_t ranks;
  std::vector<Step> steps;
  Fault fault;
  int64_t wrong;  // the rank
  size_t at;      // the step

  explicit Program(Dice& dice)
      : ranks(2 + dice.Below(3)),
        steps(static_cast<size_t>(1 + dice.Below(5))),
        fault(dice.Of(kFaults)),
        wrong(dice.Below(ranks)),
        at(static_cast<size_t>(dice.Below(static_cast<int64_t>(steps.size())))) {
    for (Step& step : steps) {
      step.beside = dice.OneIn(3);
      step.compiles = dice.OneIn(3);
      step.same_program = dice.OneIn(2);
      for (int64_t left = 1 + dice.Below(3); left > 0; --left) {
        step.calls.push_back(dice.OneIn(2) || ranks < 4 ? AllReduceOf({})
                                                        : AllReduceOf({{0, 1}, {2, 3}}));
      }
    }
    // Of the world, so that all of them miss it.
    steps[at].calls = {AllReduceOf({})};
  }
  // Whether somebody has to be waited for as long as the time limit.
  bool IsTimed() const { return fault == Fault::kIsLate || fault == Fault::kLeaves; }
};

class Trial {
 public:
  explicit Trial(const Program& program)
      : program_(program), world_(World::Begin(program.ranks, Limit())) {}

  // What each rank was told: nothing if it has done all of its steps.
  std::vector<std::string> Told() {
    std::vector<std::future<std::string>> told;
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < program_.ranks; ++rank) {
      std::packaged_task<std::string()> task([this, rank] { return Rank(rank); });
      told.push_back(task.get_future());
      threads.emplace_back(std::move(task));
    }
    if (program_.fault == Fault::kEnded || program_.fault == Fault::kAborted) {
      while (!there_) std::this_thread::yield();
      if (program_.fault == Fault::kAborted) world_->Abort("stopped by ctrl-C");
      if (program_.fault == Fault::kEnded) world_->End();
    }
    std::vector<std::string> texts;
    for (auto& future : told) {
      if (future.wait_for(kHangs) != std::future_status::ready) {
        ADD_FAILURE() << "a rank hangs";
        std::abort();  // it holds what would be destroyed here
      }
      texts.push_back(future.get());
    }
    for (std::thread& thread : threads) thread.join();
    world_->End();
    return texts;
  }
  int graphs() const { return graphs_; }

 private:
  milliseconds Limit() const { return program_.IsTimed() ? kShort : kLong; }

  std::string Rank(int64_t rank) {
    world_->Enter(rank);
    std::string told;
    try {
      told = Steps(rank);
    } catch (const RanksDisagree& error) {
      told = error.what();
    }
    world_->Finish(rank, Line(3));
    return told;
  }

  std::string Steps(int64_t rank) {
    RankGroup group{"g", {}, {}, program_.ranks, static_cast<int>(rank)};
    for (int64_t member = 0; member < program_.ranks; ++member) group.members.push_back(member);
    group.devices = group.members;
    const std::shared_ptr<Meeting> meeting = world_->Join(group);
    for (size_t at = 0; at < program_.steps.size(); ++at) {
      const Step& step = program_.steps[at];
      const bool here = rank == program_.wrong && at == program_.at;
      const Fault fault = here ? program_.fault : Fault::kNone;
      if (here) there_ = true;
      if (fault == Fault::kLeaves) return "";
      if (fault == Fault::kIsLate) std::this_thread::sleep_for(4 * kShort);
      if (fault == Fault::kRaises) {
        world_->Fail(rank, "a rank has failed: a bug");
        world_->Abort("another rank has failed");  // by the launcher, which sees it
        return "it raised";
      }
      if (step.beside) {
        MeetBeside(group, *meeting, at + 1, fault);
      } else if (const Failure failure = RunGraph(rank, step, fault)) {
        return failure.Text();
      }
    }
    return "";
  }

  void MeetBeside(const RankGroup& group, Meeting& meeting, uint64_t number, Fault fault) {
    const auto call = std::make_shared<GroupCall>();
    call->what = fault == Fault::kDiffers ? "broadcast()" : "barrier()";
    call->number = number;
    call->rank = group.rank;
    call->meets = true;
    call->timeout = Limit();
    call->site = Line(group.rank);
    meeting.Announce(group, call);
    meeting.Meet(group, call);
    call->End(GroupCall::State::kDone);
  }

  Failure RunGraph(int64_t rank, const Step& step, Fault fault) {
    HandOver graph;
    const bool fails = fault == Fault::kCannotRun;
    graph.compiled = !step.compiles;
    graph.run = [this, fails, &step]() -> std::string {
      if (fails) return "no memory";
      if (step.compiles && !AtGate()) return "turned away";
      ++graphs_;
      return "";
    };
    graph.wait = [] {};
    const auto turn = world_->TakeTurn(rank, true);
    for (const auto& call : step.calls) {
      const bool differs = fault == Fault::kDiffers;
      if (Failure told =
              world_->Issue(rank, {differs ? AllReduceOf({}, "s8[1]") : call, Line(1)})) {
        return told;
      }
    }
    const std::string program = step.same_program ? "program" : std::to_string(rank);
    return world_->Meet(rank, Line(2), program, graph);
  }

  const Program& program_;
  const std::shared_ptr<World> world_;
  std::atomic<bool> there_{false};
  std::atomic<int> graphs_{0};
};

bool HasOneOf(const std::string& text, const std::vector<std::string>& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const std::string& part) { return text.find(part) != std::string::npos; });
}

// A part of what ranks may be told.
std::vector<std::string> Documented(Fault fault) {
  switch (fault) {
    case Fault::kNone:
      return {};
    case Fault::kDiffers:
      return {"different c"};  // calls, collectives
    case Fault::kLeaves:
      return {"has ended without calling it", "time limit of", "the timeout of"};
    case Fault::kIsLate:
      return {"time limit of", "the timeout of", "has ended without calling it"};
    case Fault::kRaises:
      return {"a rank has failed: a bug", "another rank has failed", "it raised"};
    case Fault::kCannotRun:
      return {"could not run its graph: no memory"};
    case Fault::kAborted:
      return {"stopped by ctrl-C"};
    case Fault::kEnded:
      return {"the ranks were stopped", "the launch has ended", "outside of", "whose launch has"};
  }
  return {};
}

TEST(RandomWorlds, EveryThreadEndsAndIsToldWhy) {
  std::map<Fault, int> seen;
  for (const uint64_t seed : Dice::Seeds(150)) {
    Dice dice(seed);
    const Program program(dice);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", fault " +
                 std::to_string(static_cast<int>(program.fault)));
    Trial trial(program);
    const std::vector<std::string> told = trial.Told();
    ++seen[program.fault];
    const std::vector<std::string> documented = Documented(program.fault);
    int in_graph = 0;
    for (const Step& step : program.steps) in_graph += step.beside ? 0 : 1;
    for (int64_t rank = 0; rank < program.ranks; ++rank) {
      const std::string& text = told[static_cast<size_t>(rank)];
      EXPECT_TRUE(text.empty() || HasOneOf(text, documented)) << text;
    }
    const auto is_told = [](const std::string& text) { return !text.empty(); };
    if (program.fault == Fault::kNone) {
      EXPECT_EQ(trial.graphs(), in_graph * program.ranks);
    } else if (program.fault == Fault::kDiffers || program.fault == Fault::kRaises) {
      EXPECT_TRUE(std::all_of(told.begin(), told.end(), is_told));
    } else if (program.fault == Fault::kLeaves) {
      // It may be told itself, if another was so slow before that the time limit was over.
      for (int64_t rank = 0; rank < program.ranks; ++rank) {
        EXPECT_TRUE(rank == program.wrong || is_told(told[static_cast<size_t>(rank)])) << rank;
      }
    }
    if (HasFailure()) return;
  }
  EXPECT_EQ(seen.size(), 8u);
}

}  // namespace
}  // namespace xla_cc
