// A PJRT plugin that is another one, XLA_CUDA_PLUGIN_PATH, under another name of its platform.
//
// torch_xla 2.9.0 makes "CUDA:0" of the name that JAX's CUDA plugin gives, and ends the process:
// "XLA:CUDA is not supported anymore". Of any name that it does not know it makes a device.

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  size_t struct_size;
  void* extension;
  void* client;
  const char* name;
  size_t name_size;
} NameArgs;

enum { kFunctions = 40, kClientPlatformName = 12, kExecute = 55, kOptions = 112, kMost = 1 << 13 };

static void* (*original)(NameArgs*);

static void* PlatformName(NameArgs* args) {
  void* error = original(args);
  const char* name = getenv("XLA_PLATFORM_NAME");
  if (!error) {
    args->name = name ? name : "nvidia";
    args->name_size = strlen(args->name);
  }
  return error;
}

typedef struct {
  size_t struct_size;
  void* extension;
  void* executable;
  size_t* options;
} ExecuteArgs;  // and more

static void* (*original_execute)(ExecuteArgs*);

// The options of torch_xla 2.9.0 are shorter: what a newer plugin has behind them is nothing.
static void* Execute(ExecuteArgs* args) {
  char longer[kOptions] = {0};
  size_t* before = args->options;
  if (before && *before < kOptions) {
    memcpy(longer, before, *before);
    args->options = (size_t*)longer;
    *args->options = kOptions;
  }
  void* error = original_execute(args);
  args->options = before;
  return error;
}

const void* GetPjrtApi(void) {
  static char api[kMost];
  const char* path = getenv("XLA_CUDA_PLUGIN_PATH");
  void* library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!library) {
    fprintf(stderr, "%s\n", path ? dlerror() : "XLA_CUDA_PLUGIN_PATH is not set");
    abort();
  }
  const char* (*get)(void) = (const char* (*)(void))dlsym(library, "GetPjrtApi");
  const char* whole = get();
  size_t size = *(const size_t*)whole;
  if (size > kMost) abort();
  memcpy(api, whole, size);
  void** place = (void**)(api + kFunctions) + kClientPlatformName;
  if (!original) original = (void* (*)(NameArgs*))*place;
  *place = (void*)PlatformName;
  place = (void**)(api + kFunctions) + kExecute;
  if (!original_execute) original_execute = (void* (*)(ExecuteArgs*))*place;
  *place = (void*)Execute;
  return api;
}
