#include "torch_xla_cc/made_tensors.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "torch_xla_cc/living_tensors.h"

namespace xla_cc {
namespace {

// Held until they are asked for: a weak pointer would keep what torch_xla has for a tensor as well.
// Between two programs of the device that is no more than their graphs.
class Seen {
 public:
  static Seen& Get() {
    static auto* seen = new Seen;  // never destroyed: threads may outlive main
    return *seen;
  }

  void Add(const at::Tensor& tensor) {
    std::vector<at::Tensor> dead;  // let go outside of the lock, as it may take the interpreter's
    const std::lock_guard lock(mutex_);
    tensors_.try_emplace(tensor.unsafeGetTensorImpl(), tensor);
    if (tensors_.size() < most_) return;
    dead = TakeDead();
    most_ = std::max(kLeast, 2 * tensors_.size());
  }

  void ForgetDead() {
    std::vector<at::Tensor> dead;
    const std::lock_guard lock(mutex_);
    dead = TakeDead();
  }

  void ForgetAll() {
    std::unordered_map<c10::TensorImpl*, at::Tensor> all;
    const std::lock_guard lock(mutex_);
    all.swap(tensors_);
  }

  std::vector<at::Tensor> Living() {
    std::vector<at::Tensor> dead;
    std::vector<at::Tensor> living;
    const std::lock_guard lock(mutex_);
    dead = TakeDead();
    for (const auto& [impl, tensor] : tensors_) living.push_back(tensor);
    return living;
  }

 private:
  static constexpr size_t kLeast = 4096;

  // Those that nobody else holds, and so nobody can come to hold.
  std::vector<at::Tensor> TakeDead() {
    std::vector<at::Tensor> dead;
    for (auto it = tensors_.begin(); it != tensors_.end();) {
      if (it->second.use_count() > 1) {
        ++it;
        continue;
      }
      dead.push_back(std::move(it->second));
      it = tensors_.erase(it);
    }
    return dead;
  }

  std::mutex mutex_;
  std::unordered_map<c10::TensorImpl*, at::Tensor> tensors_;
  size_t most_ = kLeast;
};

bool IsOfXla(const at::Tensor& tensor) {
  if (!tensor.defined()) return false;
  const c10::DispatchKeySet keys = tensor.key_set();
  return keys.has_backend(c10::BackendComponent::XLABit) &&
         !keys.has(c10::DispatchKey::Python);  // of no device, or others built of tensors
}

void See(const at::Tensor& tensor) {
  if (!IsOfXla(tensor)) return;
  for (const at::Tensor& inner : Unwrapped(tensor)) {
    if (IsOfXla(inner)) Seen::Get().Add(inner);
  }
}

void AfterOperator(const at::RecordFunction& function, at::ObserverContext*) {
  for (const c10::IValue& value : function.outputs()) {
    if (value.isTensor()) {
      See(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) See(tensor);
    }
  }
}

std::optional<at::CallbackHandle> callback;  // the interpreter lock guards it

}  // namespace

void WatchOperators() {
  const char* disabled = std::getenv("XLA_DISABLE_FUNCTIONALIZATION");
  const bool wraps = disabled == nullptr || *disabled == 0 || std::string(disabled) == "0";
  if (callback || !wraps) return;  // else autograd would see that others hold its tensors
  callback = at::addGlobalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> { return nullptr; },
          &AfterOperator)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION}));
}

void StopWatching() {
  if (callback) at::removeCallback(*std::exchange(callback, std::nullopt));
  Seen::Get().ForgetAll();
}

void ForgetDeadTensors() { Seen::Get().ForgetDead(); }
std::vector<at::Tensor> MadeTensors() { return Seen::Get().Living(); }

}  // namespace xla_cc
