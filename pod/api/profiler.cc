// The extension of PJRT by which torch_xla has a plugin traced: the device process traces itself,
// and what it has seen joins the trace of its rank. Where that goes wrong the rank's own trace goes
// on without it, and XLA logs our error, which says so. Without the extension torch_xla 2.9.0 ends
// the process when a trace starts.
#include <cstddef>
#include <cstdint>
#include <string>

#include "pod/entry.h"

namespace xla_cc::pod {
namespace {

struct Profiler {
  std::string traced;  // a serialized XSpace
};

// Each function's arguments begin with their size; the profiler, or the error, comes next or last.
struct CreateArgs {
  size_t struct_size;
  const char* options;
  size_t options_size;
  Profiler* profiler;
};

struct OfArgs {
  size_t struct_size;
  Profiler* profiler;
};

struct CollectArgs {
  size_t struct_size;
  Profiler* profiler;
  const void* buffer;
  size_t size;
};

struct OfErrorArgs {
  size_t struct_size;
  void* own;
  Failure* error;
};

struct ErrorMessageArgs {
  OfErrorArgs of;
  const char* message;
  size_t size;
};

struct ErrorCodeArgs {
  OfErrorArgs of;
  abi::Code code;
};

void DestroyError(void* args) noexcept { delete static_cast<OfErrorArgs*>(args)->error; }

void ErrorMessage(void* args) noexcept {
  auto& message = *static_cast<ErrorMessageArgs*>(args);
  message.message = message.of.error->message().data();
  message.size = message.of.error->message().size();
}

Failure* ErrorCode(void* args) noexcept {
  auto& code = *static_cast<ErrorCodeArgs*>(args);
  code.code = code.of.error->code();
  return nullptr;
}

void Create(CreateArgs& args) { args.profiler = new Profiler; }

void Destroy(OfArgs& args) { delete args.profiler; }

void Start(OfArgs&) { CallLiving(Kind::kProfile, Writer().Int(1)); }

void Stop(OfArgs& args) { args.profiler->traced = CallLiving(Kind::kProfile, Writer().Int(0)); }

void Collect(CollectArgs& args) {
  args.buffer = args.profiler->traced.data();
  args.size = args.profiler->traced.size();
}

// What is thrown is returned.
template <class Args, void (*body)(Args&)>
Failure* Entry(void* raw) noexcept {
  constexpr std::string_view kLost = "the trace lacks what the pod's device ran: ";
  try {
    body(*static_cast<Args*>(raw));
    return nullptr;
  } catch (const Failure& failure) {
    return new Failure(failure.code(), std::string(kLost) + failure.message());
  } catch (const std::exception& error) {
    return new Failure(abi::Code::kInternal, std::string(kLost) + error.what());
  }
}

// PLUGIN_Profiler_Api
struct Functions {
  using OfError = void (*)(void*) noexcept;
  using Function = Failure* (*)(void*) noexcept;

  size_t struct_size = sizeof(Functions);
  void* own = nullptr;
  OfError error_destroy = &DestroyError;
  OfError error_message = &ErrorMessage;
  Function error_code = &ErrorCode;
  Function create = &Entry<CreateArgs, Create>;
  Function destroy = &Entry<OfArgs, Destroy>;
  Function start = &Entry<OfArgs, Start>;
  Function stop = &Entry<OfArgs, Stop>;
  Function collect = &Entry<CollectArgs, Collect>;
};
static_assert(sizeof(Functions) == 80);
Functions functions;

// PJRT_Profiler_Extension
struct Extension {
  size_t struct_size = sizeof(Extension);
  int32_t type = 1;
  void* next = nullptr;
  Functions* profiler = &functions;
  int64_t context = -1;
};
static_assert(sizeof(Extension) == 40);
Extension extension;

}  // namespace

void AddProfiler(Table& table) { table.head.extensions = &extension; }

}  // namespace xla_cc::pod
