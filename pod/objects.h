// What the functions of the API hand out.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pod/abi/types.h"
#include "pod/event.h"
#include "pod/link.h"

namespace xla_cc::pod::abi {

struct Error {
  Failure failure;
};

struct Event {
  OccurrencePtr occurrence;
};

struct DeviceDescription {
  int id;  // of the process as well: each has one device
  std::string kind, text, collectives;
  NamedValue attributes[2];  // the process, and how its collectives go; of one rank there are none
};

struct Device {
  DeviceDescription* description;
  Memory* memory;  // nullptr if it is of another process
  Client* client;
};

struct Memory {
  Device* device;
  Device* devices[1];
};

struct Topology {
  std::string platform_name, platform_version;
  std::vector<std::unique_ptr<DeviceDescription>> descriptions;
  std::vector<DeviceDescription*> list;
};

}  // namespace xla_cc::pod::abi

namespace xla_cc::pod {

// What the device process of each client that lives answers, one behind the other. Throws.
std::string CallLiving(Kind kind, const Writer& body);

// What is known of a program when it has been compiled.
struct ProgramFacts {
  std::string name, fingerprint, module;  // the module is a HloModuleProtoWithConfig
  int64_t num_replicas = 1, num_partitions = 1, code_size = 0;
  std::vector<abi::Type> output_types;
  std::vector<std::vector<int64_t>> output_dims;
  std::vector<int64_t> donated;  // the parameters whose buffers outputs may take
  std::vector<int64_t> flat_dims;
  std::vector<size_t> ranks;
};

// A program in the device process, which forgets it when this ends.
struct RemoteProgram {
  RemoteProgram(abi::Client* client, int64_t id, ProgramFacts facts)
      : client(client), id(id), facts(std::move(facts)) {}
  ~RemoteProgram();
  RemoteProgram(const RemoteProgram&) = delete;
  RemoteProgram& operator=(const RemoteProgram&) = delete;

  abi::Client* const client;
  const int64_t id;
  const ProgramFacts facts;
};

}  // namespace xla_cc::pod

namespace xla_cc::pod::abi {

struct Executable {
  std::shared_ptr<RemoteProgram> program;
  // What was asked for, and is handed out as addresses.
  std::vector<std::string> cost_names;
  std::vector<NamedValue> costs;
  std::vector<const char*> memory_kinds;
  std::vector<size_t> memory_kind_sizes;
};

struct LoadedExecutable {
  std::shared_ptr<RemoteProgram> program;  // none when it has been deleted
  Client* client;
};

struct Buffer {
  Client* client;
  int64_t id;
  Type type;
  std::vector<int64_t> dims;
  std::vector<int64_t> minor_to_major;
  OccurrencePtr ready;
  std::atomic<bool> deleted = false;
};

struct Client {
  std::shared_ptr<Link> link;  // also of who waits for an answer on it
  Topology topology;
  int process = 0;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<Device*> list;
  Device* own = nullptr;
  Memory memory = {};
  Memory* memories[1] = {&memory};

  // Buffers that are let go are told together: with the next thing that is said, or when there are
  // many of them.
  void Free(int64_t buffer, size_t bytes);
  void FlushFreed();
  int64_t NextId() { return ++last_id; }

  std::mutex mutex;
  std::vector<int64_t> freed;
  size_t freed_bytes = 0;
  std::atomic<int64_t> last_id = 0;
};

}  // namespace xla_cc::pod::abi
