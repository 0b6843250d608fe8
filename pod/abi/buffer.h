// The PJRT C API: buffers.
#pragma once

#include "pod/abi/types.h"

namespace xla_cc::pod::abi {

struct BufferFromHostArgs {
  Head head;
  Client* client;
  const void* data;
  Type type;
  const int64_t* dims;
  size_t num_dims;
  const int64_t* byte_strides;
  size_t num_byte_strides;
  int32_t semantics;
  Device* device;
  Memory* memory;
  const Layout* layout;
  Event* done_with_host_buffer;  // out
  Buffer* buffer;                // out
};
static_assert(sizeof(BufferFromHostArgs) == 120);

struct BufferToHostArgs {
  Head head;
  Buffer* buffer;
  const Layout* host_layout;
  void* destination;
  size_t size;   // in, and out if there is no destination
  Event* event;  // out
};

struct BufferCopyRawArgs {
  Head head;
  Buffer* buffer;
  void* destination;
  int64_t offset;
  int64_t size;
  Event* event;  // out
};

// To a device or to a memory.
template <class Place>
struct BufferCopyArgs {
  Head head;
  Buffer* buffer;
  Place* place;
  Buffer* copy;  // out
};

struct BufferLayoutArgs {
  Head head;
  Buffer* buffer;
  Layout layout;  // out
};

}  // namespace xla_cc::pod::abi
