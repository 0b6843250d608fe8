// The extension module torch_xla_cc._C: what each folder binds, in one place.
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "torch_xla_cc/call_site.h"
#include "torch_xla_cc/distributed/bind.h"
#include "torch_xla_cc/graph/bind.h"
#include "torch_xla_cc/graph/meta_kernels.h"
#include "torch_xla_cc/graph/noted_calls.h"
#include "torch_xla_cc/graph/records.h"
#include "torch_xla_cc/graph/tokens.h"
#include "torch_xla_cc/graph/torch_ops.h"
#include "torch_xla_cc/graph/view_writes.h"
#include "torch_xla_cc/groupcall/at_work.h"
#include "torch_xla_cc/living_tensors.h"
#include "torch_xla_cc/made_tensors.h"
#include "torch_xla_cc/python_side.h"
#include "torch_xla_cc/threads/bind.h"
#include "torch_xla_cc/torch_function.h"
#include "torch_xla_cc/views.h"

namespace {

// The last that the process does if a thread still waits for peers: what is destroyed from here on,
// of libraries that were loaded before this one, is what such a thread uses when they have died.
void EndAtOnce(int status, void*) {
  if (!xla_cc::AtWork::Any()) return;
  std::fflush(nullptr);
  _exit(status);
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  using namespace xla_cc;  // NOLINT: the module's body is this library's
  AddExceptions(m);
  m.def("set_python_side", &SetPythonSide);
  m.def("set_folders", &SetFolders);
  BindCollectives(m);
  BindLowering(m);
  BindCapabilities(m);
  BindNotedCalls(m);
  BindThreads(m);
  BindDistributed(m);
  RegisterTorchOps();
  RegisterViewWrites();
  RegisterMetaKernels();
  m.def("at_work", &AtWork::Any);
  m.def("waits_for_peers", &WaitsForPeers::Any);
  m.def("unwrapped", &Unwrapped);
  m.def("torch_function", &TorchFunction, py::arg("handlers"), py::arg("keyword"),
        py::arg("other"));
  m.def("living_tensors", &LivingTensors, py::arg("generation") = py::none());
  m.def("forget_dead_tensors", &ForgetDeadTensors);
  m.def("made_tensors", &MadeTensors);
  m.def("follow", &Follow);
  on_exit(&EndAtOnce, nullptr);
  pthread_atfork(nullptr, nullptr, &AtWork::Forked);
  // At the end of the process: what holds tensors lets them go while there is an interpreter.
  m.def("let_go", [] {
    ResetTokens();
    TakeRecords();
    NotedCalls::Get().Forget();
    StopWatching();
    PlanCache::Get().Clear();
  });
}
