// The PJRT C API: errors, events, clients, devices, memories.
#pragma once

#include "pod/abi/types.h"

namespace xla_cc::pod::abi {

struct ErrorMessageArgs {
  Head head;
  const Error* error;
  const char* message;  // out
  size_t size;          // out
};

struct EventOnReadyArgs {
  Head head;
  Event* event;
  void (*callback)(Error* error, void* argument);
  void* argument;
};

struct PluginAttributesArgs {
  Head head;
  const NamedValue* attributes;  // out
  size_t size;                   // out
};

// The first version of it; what came later (a store of keys) is not used.
struct ClientCreateArgs {
  Head head;
  const NamedValue* options;
  size_t num_options;
  void* kv_get;
  void* kv_get_argument;
  void* kv_put;
  void* kv_put_argument;
  Client* client;  // out
};

struct ClientLookupArgs {
  Head head;
  Client* client;
  int id;
  Device* device;  // out
};

struct DefaultAssignmentArgs {
  Head head;
  Client* client;
  int num_replicas;
  int num_partitions;
  size_t size;
  int* assignment;  // filled
};

struct MemoryStatsArgs {
  struct Figure {
    int64_t value;
    bool is_set;
  };

  Head head;
  Device* device;
  int64_t bytes_in_use;  // out
  Figure peak_bytes_in_use, num_allocs, largest_alloc, bytes_limit, bytes_reserved,
      peak_bytes_reserved, bytes_reservable_limit, largest_free_block, pool_bytes, peak_pool_bytes;
};
static_assert(sizeof(MemoryStatsArgs) == 32 + 10 * 16);

}  // namespace xla_cc::pod::abi
