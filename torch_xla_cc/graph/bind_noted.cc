#include "torch_xla_cc/gil.h"
#include "torch_xla_cc/graph/attach.h"
#include "torch_xla_cc/graph/bind.h"
#include "torch_xla_cc/graph/noted_calls.h"

namespace xla_cc {

void BindNotedCalls(py::module_& m) {
  static NotedCalls& calls = NotedCalls::Get();
  py::module_ noted = m.def_submodule("noted_calls");
  noted.def("start", [](std::string group) { calls.Start(std::move(group)); });
  noted.attr("MOST") = NotedCalls::kMost;
  noted.def("give_up", [](int64_t until) { calls.GiveUp(until); });
  noted.def("counted", [] { return calls.counted(); });
  noted.def("on", [] { return calls.on(); });
  noted.def("gave_up", [] { return calls.gave_up(); });
  noted.def("count", [] { return calls.size(); });
  // All that they hold.
  noted.def("tensors", [] {
    std::vector<at::Tensor> held;
    for (int64_t i = 0; i < calls.size(); ++i) {
      for (const at::Tensor& x : calls.At(i).operands) held.push_back(x);
      for (const at::Tensor& x : calls.At(i).results) held.push_back(x);
    }
    return held;
  });
  noted.def("settle", [](int64_t first) { calls.Settle(first); });
  noted.def("forget", [] { calls.Forget(); });
  noted.def("set_wanted", [](bool wanted) { calls.SetWanted(wanted); });
  // Of the first n calls: 0 if there are none.
  noted.def("chain", [](int64_t n) { return n == 0 ? 0 : calls.At(n - 1).chain; });
  noted.def("of_all", [](int64_t i) { return calls.At(i).of_all; });
  noted.def("operands", [](int64_t i) { return calls.At(i).operands; });
  noted.def("results", [](int64_t i) { return calls.At(i).results; });
  // The same call once more, of these operands: its results.
  noted.def("again", [](int64_t i, const std::vector<at::Tensor>& operands) {
    const Collective collective = calls.At(i).collective;  // it runs Python
    return AttachTensors(collective, operands);
  });
  // The same by the ranks of its group alone, which compare it before.
  noted.def("apart", [](int64_t i, const std::vector<at::Tensor>& operands) {
    const NotedCall call = calls.At(i);
    if (!call.of_group.apart) {
      Unlocked([&] {
        if (call.of_group.compare) call.of_group.compare();
      });
      return AttachTensors(call.collective, operands);
    }
    return Unlocked([&] { return call.of_group.apart(operands); });
  });
  noted.def("pause", &PauseNoting);
  noted.def("resume", &ResumeNoting);
}

}  // namespace xla_cc
