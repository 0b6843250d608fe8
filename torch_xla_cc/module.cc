// The extension module torch_xla_cc._C: what each folder binds, in one place.
#include "torch_xla_cc/call_site.h"
#include "torch_xla_cc/distributed/bind.h"
#include "torch_xla_cc/graph/bind.h"
#include "torch_xla_cc/graph/records.h"
#include "torch_xla_cc/graph/tokens.h"
#include "torch_xla_cc/graph/torch_ops.h"
#include "torch_xla_cc/python_side.h"
#include "torch_xla_cc/threads/bind.h"

PYBIND11_MODULE(_C, m) {
  using namespace xla_cc;  // NOLINT: the module's body is this library's
  AddExceptions(m);
  m.def("set_python_side", &SetPythonSide);
  m.def("set_folders", &SetFolders);
  BindCollectives(m);
  BindLowering(m);
  BindCapabilities(m);
  BindThreads(m);
  BindDistributed(m);
  RegisterTorchOps();
  // At the end of the process: what holds tensors lets them go while there is an interpreter.
  m.def("let_go", [] {
    ResetTokens();
    TakeRecords();
    PlanCache::Get().Clear();
  });
}
