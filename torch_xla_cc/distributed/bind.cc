#include "torch_xla_cc/distributed/bind.h"

#include <numeric>

#include "torch_xla_cc/distributed/backend.h"
#include "torch_xla_cc/distributed/call_mode.h"
#include "torch_xla_cc/distributed/graph/graph_transport.h"
#include "torch_xla_cc/distributed/host/host_transport.h"
#include "torch_xla_cc/distributed/kernels/kernels.h"
#include "torch_xla_cc/distributed/paper/paper_host.h"
#include "torch_xla_cc/distributed/paper/paper_transport.h"
#include "torch_xla_cc/distributed/run_pending.h"
#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/graph/target.h"
#include "torch_xla_cc/groupcall/flight_recorder.h"
#include "torch_xla_cc/threads/meeting.h"
#include "torch_xla_cc/threads/world.h"

namespace xla_cc {
namespace {

constexpr const char* kNotConnected =
    "XLA does not connect processes whose devices are CPUs, so gloo carries the bytes";
constexpr const char* kBeside =
    "when it traces, a rank knows only its own part of this call, or not all ranks make it, so "
    "gloo carries the bytes beside the graph";

// CallModeScope as a context of Python, with what it changes.
class ModeScope {
 public:
  ModeScope(std::optional<bool> in_graph, std::optional<bool> one_buffer,
            std::optional<bool> messages)
      : change_{in_graph, std::nullopt, std::nullopt, one_buffer, messages} {}
  void Enter() {
    if (scope_) throw BadValue("call_mode: it is entered already");
    scope_.emplace(change_);
  }
  void Exit() { scope_.reset(); }

 private:
  const CallModeChange change_;
  std::optional<CallModeScope> scope_;
};

}  // namespace

void BindDistributed(py::module_& m) {
  m.def("register_kernels", &RegisterKernels);
  // Whether it is ours.
  m.def("stop_coalescing", [](const c10::intrusive_ptr<c10d::Backend>& backend) {
    auto* ours = dynamic_cast<XlaBackend*>(backend.get());
    if (ours != nullptr) ours->StopCoalescing();
    return ours != nullptr;
  });
  // By device, its place in the group that it is in; none where ranks' programs are their own.
  m.def(
      "places_in_groups",
      [](const c10::intrusive_ptr<c10d::Backend>& backend) -> std::optional<std::vector<int64_t>> {
        const auto* ours = dynamic_cast<XlaBackend*>(backend.get());
        if (ours == nullptr || !ours->OfAllRanks()) return std::nullopt;
        const RankGroup& group = ours->group();
        if (group.world_size != CurrentTarget().world_size) return std::nullopt;
        return GroupsFor(group).Positions(group.world_size);
      });
  m.def("run_pending_before_waiting", &RunPendingBeforeWaiting,
        py::call_guard<py::gil_scoped_release>());
  m.def("bounded_ms", [](int64_t timeout_ms) { return Bounded(Timeout(timeout_ms)).count(); });
  // With a group of gloo, of the same ranks, where ranks are processes, and the check between them.
  m.def(
      "process_backend",
      [](c10::intrusive_ptr<c10d::Backend> gloo, const c10::intrusive_ptr<c10d::Store>& store,
         int check, bool in_graph, bool stay, bool device_compares, bool all_launch, bool messages,
         RankGroup group, int64_t timeout_ms) -> c10::intrusive_ptr<c10d::Backend> {
        auto host = std::make_unique<HostTransport>(group, std::move(gloo), store,
                                                    static_cast<CheckMode>(check),
                                                    in_graph ? kBeside : kNotConnected);
        auto on_paper = GraphTransport::OnPaper(group);
        std::unique_ptr<Transport> transport;
        if (in_graph) {
          transport = GraphTransport::OfProcesses(std::move(group), std::move(host),
                                                  {stay, device_compares, all_launch, messages});
        } else {
          transport = std::move(host);
        }
        return c10::make_intrusive<XlaBackend>(std::move(transport), std::move(on_paper),
                                               Timeout(timeout_ms));
      },
      py::call_guard<py::gil_scoped_release>());  // it connects to the store
  m.def("thread_backend",
        [](RankGroup group, int64_t timeout_ms) -> c10::intrusive_ptr<c10d::Backend> {
          const std::shared_ptr<World> world = World::OfThread();
          if (!world && group.size() > 1) World::Outside().Throw();
          const int64_t lost = world ? world->Losses(group.own()) : 0;
          // One rank, which no launch has started, meets itself.
          auto meeting = world ? world->Join(group) : std::make_shared<Meeting>(nullptr);
          // Of what went wrong before, nothing is to run among the calls of this one.
          if (world && world->Losses(group.own()) != lost) DropPending(group);
          return c10::make_intrusive<XlaBackend>(
              GraphTransport::OfThreads(std::move(group), std::move(meeting)), nullptr,
              Timeout(timeout_ms));
        });
  m.def("paper_backend",
        [](RankGroup group, int64_t timeout_ms) -> c10::intrusive_ptr<c10d::Backend> {
          auto outside = std::make_unique<PaperTransport>(group);
          return c10::make_intrusive<XlaBackend>(
              std::move(outside), GraphTransport::OnPaper(std::move(group)), Timeout(timeout_ms));
        });
  // Made, and asked for its options, as c10d's ProcessGroupGloo.
  py::class_<PaperHost, c10::intrusive_ptr<PaperHost>, c10d::Backend>(m, "PaperHost")
      .def(py::init([](const c10::intrusive_ptr<c10d::Store>&, int rank, int size,
                       const py::object&) {
             std::vector<int64_t> members(size);
             std::iota(members.begin(), members.end(), 0);
             return c10::make_intrusive<PaperHost>(RankGroup{"host", members, members, size, rank});
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"))
      .def_property_readonly("options", &PaperHost::getBackendOptions);
  m.def("calls_on_paper", &PaperTransport::Calls);
  py::class_<RankGroup>(m, "RankGroup")
      .def(py::init([](std::string name, std::vector<int64_t> members, std::vector<int64_t> devices,
                       int64_t world_size, int rank) {
        return RankGroup{std::move(name), std::move(members), std::move(devices), world_size, rank};
      }));
  m.def("recorded_calls", [](int64_t rank) {
    py::list list;
    for (const CallPtr& call : Recorder::Get().Of(rank)) {
      const Said said = SaidOf(*call);
      py::dict entry;
      entry["group"] = call->group;
      entry["number"] = call->number;
      entry["call"] = said.what;
      entry["site"] = said.site;
      entry["through"] = call->through_host ? "host" : "graph";
      entry["state"] = StateName(call->state);
      entry["issued"] = static_cast<double>(call->issued_us) / 1e6;
      entry["ended"] = static_cast<double>(call->ended_us) / 1e6;
      list.append(entry);
    }
    return list;
  });
  m.def("record_calls", [](size_t capacity) { Recorder::Get().SetCapacity(capacity); });
  m.def("set_dumper", [](py::function function) {
    auto* dumper = new py::function(std::move(function));  // for good: any thread may call it
    Recorder::Get().SetDumper([dumper](int64_t rank, const std::string& why) {
      const py::gil_scoped_acquire locked;
      try {
        (*dumper)(rank, why);
      } catch (py::error_already_set& error) {
        error.discard_as_unraisable("torch_xla_cc's flight recorder");
      }
    });
  });
  py::class_<ModeScope>(m, "call_mode")
      .def(py::init<std::optional<bool>, std::optional<bool>, std::optional<bool>>(), py::kw_only(),
           py::arg("in_graph") = py::none(), py::arg("one_buffer") = py::none(),
           py::arg("messages") = py::none())
      .def("__enter__", &ModeScope::Enter)
      .def("__exit__", [](ModeScope& scope, const py::args&) { scope.Exit(); });
}

}  // namespace xla_cc
