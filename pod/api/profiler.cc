// The extension of PJRT by which torch_xla has a plugin traced: it is there, and traces nothing.
// Without it torch_xla 2.9.0 ends the process when a trace starts.
#include <cstddef>
#include <cstdint>

#include "pod/entry.h"

namespace xla_cc::pod {
namespace {

struct Profiler {};
Profiler the_profiler;

// Each function's arguments begin with their size; the profiler, or the error, comes next or last.
struct CreateArgs {
  size_t struct_size;
  const char* options;
  size_t options_size;
  Profiler* profiler;
};

struct CollectArgs {
  size_t struct_size;
  Profiler* profiler;
  uint8_t* buffer;
  size_t size;
};

void* Create(void* args) noexcept {
  static_cast<CreateArgs*>(args)->profiler = &the_profiler;
  return nullptr;
}

void* Nothing(void*) noexcept { return nullptr; }

void* Collect(void* args) noexcept {
  auto& collect = *static_cast<CollectArgs*>(args);
  collect.buffer = nullptr;
  collect.size = 0;
  return nullptr;
}

// PLUGIN_Profiler_Api
struct Functions {
  using Function = void* (*)(void*) noexcept;

  size_t struct_size = sizeof(Functions);
  void* own = nullptr;
  Function error_destroy = &Nothing;
  Function error_message = &Nothing;
  Function error_code = &Nothing;
  Function create = &Create;
  Function destroy = &Nothing;
  Function start = &Nothing;
  Function stop = &Nothing;
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
