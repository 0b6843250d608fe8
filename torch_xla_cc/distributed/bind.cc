#include "torch_xla_cc/distributed/bind.h"

#include "torch_xla_cc/distributed/backend.h"
#include "torch_xla_cc/distributed/board.h"
#include "torch_xla_cc/distributed/graph_transport.h"
#include "torch_xla_cc/distributed/host_transport.h"
#include "torch_xla_cc/distributed/kernels.h"

namespace xla_cc {

void BindDistributed(py::module_& m) {
  m.def("register_kernels", &RegisterKernels);
  m.def("graph_backend",
        [](std::string name, std::vector<int64_t> members, int64_t world_size, int rank,
           int64_t timeout_ms) -> c10::intrusive_ptr<c10d::Backend> {
          Group group{std::move(name), std::move(members), world_size, rank};
          return c10::make_intrusive<XlaBackend>(std::make_unique<GraphTransport>(std::move(group)),
                                                 Timeout(timeout_ms));
        });
  m.def("host_backend",
        [](c10::intrusive_ptr<c10d::Backend> gloo, std::string name, std::vector<int64_t> members,
           int64_t world_size, int rank, int64_t timeout_ms) -> c10::intrusive_ptr<c10d::Backend> {
          Group group{std::move(name), std::move(members), world_size, rank};
          return c10::make_intrusive<XlaBackend>(
              std::make_unique<HostTransport>(std::move(group), std::move(gloo)),
              Timeout(timeout_ms));
        });
  m.def("set_in_graph", [](bool value) { return std::exchange(InGraph(), value); });
  m.def("board_clear", [] { Board::Get().Clear(); });
  m.def("board_stop", [](const std::string& why) { Board::Get().Stop(why); });
}

}  // namespace xla_cc
