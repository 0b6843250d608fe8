// The PJRT C API: programs.
#pragma once

#include "pod/abi/types.h"

namespace xla_cc::pod::abi {

struct Program {
  Head head;
  char* code;
  size_t code_size;
  const char* format;
  size_t format_size;
};

struct CompileArgs {
  Head head;
  Client* client;
  const Program* program;
  const char* options;
  size_t options_size;
  LoadedExecutable* executable;  // out
};

struct LoadArgs {
  Head head;
  Client* client;
  const char* bytes;
  size_t size;
  LoadedExecutable* executable;  // out
  const char* options;           // or nullptr: those that were serialized with it
  size_t options_size;
};

struct OptimizedProgramArgs {
  Head head;
  Executable* executable;
  Program* program;  // `code` is filled if it is not nullptr
};

struct OutputDimensionsArgs {
  Head head;
  Executable* executable;
  size_t num_outputs;
  const int64_t* dims;      // out: of all outputs
  const size_t* dim_sizes;  // out: of each output
};

struct OutputMemoryKindsArgs {
  Head head;
  Executable* executable;
  size_t num_outputs;
  const char* const* kinds;  // out
  const size_t* kind_sizes;  // out
};

struct CompiledMemoryStatsArgs {
  static constexpr int kFigures = 11;

  Head head;
  Executable* executable;
  int64_t figures[kFigures];  // out: in the order of xla::CompiledMemoryStats
};

struct ExecuteOptions {
  Head head;
  void* send_callbacks;
  void* recv_callbacks;
  size_t num_send_ops;
  size_t num_recv_ops;
  int launch_id;
  const int64_t* non_donatable;
  size_t num_non_donatable;
  // What came later is not used.
};

struct ExecuteArgs {
  Head head;
  LoadedExecutable* executable;
  const ExecuteOptions* options;
  Buffer* const* const* arguments;
  size_t num_devices;
  size_t num_arguments;
  Buffer** const* outputs;  // filled
  Event** done;             // filled, if not nullptr
  Device* device;
};
static_assert(sizeof(ExecuteArgs) == 80);

}  // namespace xla_cc::pod::abi
