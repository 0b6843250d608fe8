#include "torch_xla_cc/distributed/work.h"

namespace xla_cc {

IssuedWork::IssuedWork(Tensors outputs, int source)
    : Work(-1, c10d::OpType::UNKNOWN), outputs_(std::move(outputs)), source_(source) {}

c10::intrusive_ptr<c10::ivalue::Future> IssuedWork::getFuture() {
  auto future =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  future->markCompleted(c10::IValue(outputs_));
  return future;
}

}  // namespace xla_cc
