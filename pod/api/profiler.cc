// The extension of PJRT by which torch_xla has a plugin traced: the device process traces itself,
// and what it has seen joins the trace of its rank. A device process that is gone adds nothing.
// Without the extension torch_xla 2.9.0 ends the process when a trace starts.
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

std::string Tell(bool traces) noexcept {
  try {
    return CallLiving(Kind::kProfile, Writer().Int(traces ? 1 : 0));
  } catch (const std::exception&) {
    return {};
  }
}

void* Create(void* args) noexcept {
  static_cast<CreateArgs*>(args)->profiler = new Profiler;
  return nullptr;
}

void* Destroy(void* args) noexcept {
  delete static_cast<OfArgs*>(args)->profiler;
  return nullptr;
}

void* Start(void*) noexcept {
  Tell(true);
  return nullptr;
}

void* Stop(void* args) noexcept {
  static_cast<OfArgs*>(args)->profiler->traced = Tell(false);
  return nullptr;
}

void* Collect(void* args) noexcept {
  auto& collect = *static_cast<CollectArgs*>(args);
  collect.buffer = collect.profiler->traced.data();
  collect.size = collect.profiler->traced.size();
  return nullptr;
}

void* Nothing(void*) noexcept { return nullptr; }

// PLUGIN_Profiler_Api
struct Functions {
  using Function = void* (*)(void*) noexcept;

  size_t struct_size = sizeof(Functions);
  void* own = nullptr;
  Function error_destroy = &Nothing;
  Function error_message = &Nothing;
  Function error_code = &Nothing;
  Function create = &Create;
  Function destroy = &Destroy;
  Function start = &Start;
  Function stop = &Stop;
  Function collect = &Collect;
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
