#include "torch_xla_cc/threads/compile_gate.h"

#include <torch/csrc/lazy/backend/backend_interface.h>
#include <torch/csrc/lazy/core/lazy_graph_executor.h>
#include <torch/csrc/lazy/core/tensor.h>

#include <stdexcept>
#include <vector>

#include "torch_xla_cc/threads/gated_run.h"

namespace xla_cc {
namespace {

// The device locks of torch are for its backends.
struct Executor : torch::lazy::LazyGraphExecutor {
  using LazyGraphExecutor::DeviceLocker;
  using LazyGraphExecutor::DeviceLockerArena;
};

}  // namespace

struct CompileGate::Lock {
  explicit Lock(int64_t rank) {
    const torch::lazy::BackendDevice device =
        torch::lazy::getBackend()->GetBackendDevice(c10::Device(c10::kXLA, rank));
    auto* arena = Executor::DeviceLockerArena::Get();
    held = arena->LockDevices({device});
    const auto locker = arena->GetLocker(device);
    begin = reinterpret_cast<uintptr_t>(locker.get());
    end = begin + sizeof(Executor::DeviceLocker);
  }

  std::vector<torch::lazy::ExceptionCleanup> held;
  uintptr_t begin = 0;  // where the lock is in memory
  uintptr_t end = 0;
  GatedRun program;
};

bool CompileGate::Works() { return GatedRun::Works(); }

CompileGate::CompileGate(int64_t rank) : lock_(std::make_unique<Lock>(rank)) {}
CompileGate::~CompileGate() { Open(false); }
bool CompileGate::Waits() const { return lock_->program.waits(); }

void CompileGate::Compile(std::function<void()> run) {
  lock_->program.Start(std::move(run), lock_->begin, lock_->end);
}

void CompileGate::Open(bool go) {
  // The next thread to take the lock raises its status, and that must be the program's.
  if (!go && Waits()) {
    for (auto& held : lock_->held) {
      held.SetStatus(std::make_exception_ptr(std::runtime_error("turned away")));
    }
  }
  lock_->held.clear();
  lock_->program.Join();
}

int64_t TensorsMade() {
  return torch::lazy::LazyTensor::Data(torch::lazy::BackendDevice()).unique_id;
}

}  // namespace xla_cc
