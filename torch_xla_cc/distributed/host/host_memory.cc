#include "torch_xla_cc/distributed/host/host_memory.h"

#include <ATen/ATen.h>
#include <ATen/DLConvertor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "torch_xla_cc/distributed/write_into.h"
#include "torch_xla_cc/gil.h"
#include "torch_xla_cc/python_side.h"

namespace xla_cc {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kMostKept = size_t{512} << 20;

// Blocks of memory that are free, by size.
class Pool {
 public:
  static Pool& Get() {
    static auto* pool = new Pool;
    return *pool;
  }
  void* Take(size_t size) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = free_.find(size);
      if (found != free_.end()) {
        void* block = found->second;
        free_.erase(found);
        kept_ -= size;
        return block;
      }
    }
    void* block = std::aligned_alloc(kAlignment, size);
    TORCH_CHECK(block != nullptr, "out of memory for ", size, " bytes on the host");
    return block;
  }
  void GiveBack(void* block, size_t size) {
    const std::lock_guard lock(mutex_);
    if (kept_ + size > kMostKept) return std::free(block);
    kept_ += size;
    free_.emplace(size, block);
  }

 private:
  std::mutex mutex_;
  std::multimap<size_t, void*> free_;
  size_t kept_ = 0;
};

// Types that DLPack, as these libraries have it, cannot say.
bool IsDlpackType(at::ScalarType type) { return !c10::isFloat8Type(type); }

// Recursive: a signal handler, or a __del__, may come to ask for a Work while its thread has it.
std::recursive_mutex& MutexOf(at::Device device) {
  static auto* mutexes = new std::map<at::DeviceIndex, std::recursive_mutex>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return (*mutexes)[device.index()];
}

}  // namespace

std::unique_lock<std::recursive_mutex> LockTensors(at::Device device) {
  std::unique_lock lock(MutexOf(device), std::defer_lock);
  Unlocked([&] { lock.lock(); });  // who holds it may wait for the interpreter lock
  return lock;
}

at::Tensor HostView(const at::Tensor& x) {
  if (x.numel() == 0) return at::empty(x.sizes(), at::TensorOptions(x.scalar_type()));
  const py::gil_scoped_acquire locked;
  const auto lock = LockTensors(x.device());
  if (!IsDlpackType(x.scalar_type())) return x.to(at::kCPU).contiguous();
  const py::object tensor = py::cast(x);
  // All that is pending, and not only what this tensor needs: the rest would be a program of its
  // own later, in which much of this one is computed once more.
  if (CallPython(Python().needs_run, tensor).cast<bool>()) {
    CallPython(Python().run_live, static_cast<int64_t>(x.device().index()));
  }
  const py::object capsule = CallPython(Python().to_dlpack, tensor);
  auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  if (managed == nullptr) throw py::error_already_set();
  PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  return at::fromDLPack(managed).contiguous().view(x.sizes());
}

at::Tensor HostBuffer(at::IntArrayRef sizes, at::ScalarType type) {
  const size_t wanted = c10::multiply_integers(sizes) * c10::elementSize(type);
  if (wanted == 0) return at::empty(sizes, at::TensorOptions(type));
  const size_t size = (wanted + kAlignment - 1) / kAlignment * kAlignment;
  void* block = Pool::Get().Take(size);
  return at::from_blob(
      block, sizes, [size](void* pointer) { Pool::Get().GiveBack(pointer, size); },
      at::TensorOptions(type));
}

at::Tensor HostCopy(const at::Tensor& x) {
  const at::Tensor view = HostView(x);
  const at::Tensor copy = HostBuffer(view.sizes(), view.scalar_type());
  copy.copy_(view);
  return copy;
}

void WriteFromHost(const at::Tensor& x, const at::Tensor& value) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  if (x.numel() == 0) return;
  if (!IsDlpackType(x.scalar_type())) {
    Write(x, value.reshape(x.sizes()).to(x.device()));
    return;
  }
  at::Tensor whole = value.contiguous();
  // A part of a buffer: XLA takes aligned memory only.
  if (reinterpret_cast<uintptr_t>(whole.data_ptr()) % kAlignment != 0) {
    const at::Tensor copy = HostBuffer(whole.sizes(), whole.scalar_type());
    copy.copy_(whole);
    whole = copy;
  }
  const py::gil_scoped_acquire locked;
  const py::capsule capsule(at::toDLPack(whole), "dltensor");
  const py::object imported = CallPython(Python().from_dlpack, capsule);
  Write(x, THPVariable_Unpack(imported.ptr()));
}

}  // namespace xla_cc
