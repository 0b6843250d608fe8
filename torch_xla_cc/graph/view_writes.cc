#include "torch_xla_cc/graph/view_writes.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "torch_xla_cc/registration.h"

namespace xla_cc {
namespace {

using Sizes = std::vector<int64_t>;
using torch::jit::Stack;

// `part` in place of the elements from `start` along `dim`. Without a node for what is empty.
at::Tensor Written(const at::Tensor& whole, const at::Tensor& part, int64_t dim, int64_t start) {
  const int64_t end = start + part.size(dim);
  std::vector<at::Tensor> pieces;
  if (start > 0) pieces.push_back(at::slice_copy(whole, dim, 0, start));
  pieces.push_back(part);
  if (end < whole.size(dim)) pieces.push_back(at::slice_copy(whole, dim, end, whole.size(dim)));
  return at::cat(pieces, dim);
}

// What a kernel is of, and what it makes; nothing where torch_xla's own is to be called.
using Answer = std::optional<at::Tensor>;

bool Both(const at::Tensor& whole, const at::Tensor& part) {
  return whole.scalar_type() == part.scalar_type() && whole.device() == part.device() &&
         part.numel() > 0 && part.numel() < whole.numel();
}

std::optional<int64_t> Within(int64_t index, int64_t size) {
  if (index < -size || index >= size) return std::nullopt;
  return index < 0 ? index + size : index;
}

int64_t Clamped(int64_t index, int64_t size) {
  return std::clamp<int64_t>(index < 0 ? index + size : index, 0, size);
}

// torch_xla takes others, and writes elsewhere.
void RequireSizes(const char* op, const at::Tensor& part, const Sizes& expected) {
  TORCH_CHECK(part.sizes() == expected, op, ": src.shape = ", part.sizes(),
              "; required: ", at::IntArrayRef(expected),
              ", of the part that it takes the place of. Reshape it");
}

// (self, src, dim, start, end, step)
Answer SliceScatter(at::ArrayRef<c10::IValue> args) {
  const at::Tensor whole = args[0].toTensor();
  const at::Tensor part = args[1].toTensor();
  const auto dim = Within(args[2].toInt(), whole.dim());
  if (!dim || args[5].toInt() != 1) return std::nullopt;
  const int64_t size = whole.size(*dim);
  const int64_t start = args[3].isNone() ? 0 : Clamped(args[3].toInt(), size);
  const int64_t end = args[4].isNone() ? size : Clamped(args[4].toInt(), size);
  Sizes expected = whole.sizes().vec();
  expected[*dim] = std::max<int64_t>(0, end - start);
  RequireSizes("slice_scatter", part, expected);
  if (!Both(whole, part)) return std::nullopt;
  return Written(whole, part, *dim, start);
}

// Where a block of elements next to each other begins; nothing if it is not one, or not within.
std::optional<int64_t> Block(const at::Tensor& whole, const c10::IValue& sizes,
                             const c10::IValue& strides, const c10::IValue& offset) {
  if (!sizes.isIntList() || !strides.isIntList()) return std::nullopt;
  const Sizes size = sizes.toIntVector();
  const Sizes stride = strides.toIntVector();
  if (size.size() != stride.size()) return std::nullopt;
  int64_t elements = 1;
  for (size_t i = size.size(); i-- > 0;) {
    if (size[i] < 1 || (size[i] > 1 && stride[i] != elements)) return std::nullopt;
    elements *= size[i];
  }
  const int64_t start = offset.isNone() ? 0 : offset.toInt();
  if (start < 0 || start > whole.numel() - elements) return std::nullopt;
  return start;
}

at::Tensor Flat(const at::Tensor& x) { return at::view_copy(x, {x.numel()}); }

// On what AsStridedScatter has made, by which it is known again. Not by a weak pointer: that would
// keep what torch_xla has for a tensor.
struct Mark : c10::BackendMeta {
  static Mark* Of(const at::Tensor& x) {
    return dynamic_cast<Mark*>(x.unsafeGetTensorImpl()->get_backend_meta());
  }
  explicit Mark(uint64_t number) : number(number) {}
  const uint64_t number;
};

// The last on this thread, from 1 on. torch_xla lets as_strided read from what a tensor is a view
// of, which cannot be seen from here; this one is a view of nothing else.
thread_local uint64_t last_written = 0;

uint64_t NextNumber() {
  static std::atomic<uint64_t> numbers{0};
  return ++numbers;
}

// (self, src, size, stride, storage_offset)
Answer AsStridedScatter(at::ArrayRef<c10::IValue> args) {
  const at::Tensor whole = args[0].toTensor();
  const at::Tensor part = args[1].toTensor();
  const auto start = Block(whole, args[2], args[3], args[4]);
  if (!start) return std::nullopt;
  RequireSizes("as_strided_scatter", part, args[2].toIntVector());
  if (!Both(whole, part)) return std::nullopt;
  const at::Tensor written = Written(Flat(whole), Flat(part), 0, *start);
  const at::Tensor result = whole.dim() == 1 ? written : at::view_copy(written, whole.sizes());
  last_written = NextNumber();
  result.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<Mark>(last_written));
  return result;
}

// (self, size, stride, storage_offset)
Answer AsStridedCopy(at::ArrayRef<c10::IValue> args) {
  const at::Tensor whole = args[0].toTensor();
  const Mark* mark = Mark::Of(whole);
  if (!mark || mark->number != last_written) return std::nullopt;
  const auto start = Block(whole, args[1], args[2], args[3]);
  if (!start) return std::nullopt;
  const Sizes size = args[1].toIntVector();
  const int64_t end = *start + c10::multiply_integers(size);
  return at::view_copy(at::slice_copy(Flat(whole), 0, *start, end), size);
}

bool Symbolic(const c10::IValue& arg) {
  return arg.isSymInt() ||
         (arg.isTensor() && arg.toTensor().unsafeGetTensorImpl()->has_symbolic_sizes_strides());
}

// Not by torch_xla, which would take the interpreter's lock for each view.
bool Partitioned() {
  const char* spmd = std::getenv("XLA_USE_SPMD");
  return spmd != nullptr && *spmd != '\0' && std::string_view(spmd) != "0";
}

// torch_xla's, where `ours` does not answer. Not in SPMD mode: XLA would have to move the pieces of
// a sharded tensor.
template <Answer (*ours)(at::ArrayRef<c10::IValue>)>
struct Kernel {
  static inline const c10::SafeKernelFunction* stock;

  static void Call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
    const size_t count = op.schema().arguments().size();
    const auto args = torch::jit::last(*stack, count);
    const bool symbolic = std::any_of(args.begin(), args.end(), &Symbolic);
    Answer answer;
    if (!symbolic && !Partitioned()) {
      // Its rule for a concatenation knows no fp16 beside bf16.
      const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
      answer = ours(args);
    }
    if (!answer) return stock->callBoxed(op, keys, stack);
    torch::jit::drop(*stack, count);
    stack->emplace_back(*answer);
  }

  static void Register(torch::Library& xla, const char* name) {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
    stock = new c10::SafeKernelFunction(op.getComputedKernelForDispatchKey(c10::DispatchKey::XLA));
    xla.impl(name, torch::CppFunction::makeFromBoxedFunction<&Call>());
  }
};

}  // namespace

void RegisterViewWrites() {
  const SilentRegistration silent;
  static auto* aten = NewLibrary("aten", c10::DispatchKey::XLA);
  Kernel<&SliceScatter>::Register(*aten, "aten::slice_scatter");
  Kernel<&AsStridedScatter>::Register(*aten, "aten::as_strided_scatter");
  Kernel<&AsStridedCopy>::Register(*aten, "aten::as_strided_copy");
}

}  // namespace xla_cc
