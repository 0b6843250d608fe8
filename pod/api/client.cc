// PJRT_Client_*, but for what makes buffers and programs.
#include "pod/abi/client.h"

#include <algorithm>
#include <chrono>
#include <locale>
#include <set>
#include <sstream>

#include "pod/entry.h"

namespace xla_cc::pod {

namespace abi {
namespace {

constexpr size_t kFreedBuffers = 64;
constexpr size_t kFreedBytes = size_t{1} << 20;

}  // namespace

void Client::Free(int64_t buffer, size_t bytes) {
  bool many;
  {
    const std::lock_guard lock(mutex);
    freed.push_back(buffer);
    freed_bytes += bytes;
    many = freed.size() >= kFreedBuffers || freed_bytes >= kFreedBytes;
  }
  if (many) FlushFreed();
}

void Client::FlushFreed() {
  std::vector<int64_t> buffers;
  {
    const std::lock_guard lock(mutex);
    buffers.swap(freed);
    freed_bytes = 0;
  }
  if (!buffers.empty()) link->Say(Kind::kFree, Writer().Ints(buffers));
}

}  // namespace abi

namespace {

// Clients that live, for Leave. Never deleted: they may live as long as the process.
std::mutex& living_mutex = *new std::mutex;
std::set<abi::Client*>& living = *new std::set<abi::Client*>;

constexpr std::string_view kPlatformName = "pod";
constexpr std::string_view kKind = "pod";
constexpr double kLongestSeconds = 86400;

// What the plugin class in Python says: texts, of which `command.*` are the words of the command.
struct Options {
  std::vector<std::string> command;
  std::vector<std::pair<std::string, std::string>> others;
  std::string rank = "0";
  double timeout_s = 0;  // if it is more
};

Options ReadOptions(const abi::NamedValue* values, size_t count) {
  Options options;
  for (const abi::NamedValue* value = values; value != values + count; ++value) {
    if (value->kind != abi::NamedValue::Kind::kString) continue;
    const std::string_view name(value->name, value->name_size);
    std::string text(value->string, value->size);
    if (name == "command") {  // words, each ended by a line feed
      for (size_t from = 0; from < text.size();) {
        const size_t end = text.find('\n', from);
        options.command.push_back(text.substr(from, end - from));
        from = end == std::string::npos ? text.size() : end + 1;
      }
    } else {
      if (name == "rank") options.rank = text;
      if (name == "timeout_s") {
        // (std::from_chars of a double is not in the libstdc++ that wheels are built for.)
        std::istringstream stream(text);
        stream.imbue(std::locale::classic());
        stream >> options.timeout_s;
      }
      options.others.emplace_back(name, std::move(text));
    }
  }
  if (options.command.empty()) {
    throw Failure(abi::Code::kInvalidArgument,
                  "PJRT_Client_Create: the option `command` is missing. The pod is registered by "
                  "torch_xla_cc, which gives it");
  }
  return options;
}

abi::NamedValue Named(std::string_view name, abi::NamedValue::Kind kind) {
  abi::NamedValue value = {};
  value.head.struct_size = sizeof(value);
  value.name = name.data();
  value.name_size = name.size();
  value.kind = kind;
  return value;
}

std::unique_ptr<abi::DeviceDescription> Describe(int process, const std::string& collectives) {
  auto description = std::make_unique<abi::DeviceDescription>();
  description->id = process;
  description->kind = kKind;
  description->text = "PodDevice(id=" + std::to_string(process) + ")";
  auto& [of_process, of_collectives] = description->attributes;
  of_process = Named("process_index", abi::NamedValue::Kind::kInt64);
  of_process.int64 = process;
  of_process.size = 1;
  description->collectives = collectives;
  of_collectives = Named("collectives", abi::NamedValue::Kind::kString);
  of_collectives.string = description->collectives.data();
  of_collectives.size = description->collectives.size();
  return description;
}

void Create(abi::ClientCreateArgs& args) {
  const Options options = ReadOptions(args.options, args.num_options);
  auto client = std::make_unique<abi::Client>();
  client->link =
      std::make_shared<Link>(options.command, "the pod's device process of rank " + options.rank);
  if (options.timeout_s > 0) {
    const double seconds = std::clamp(options.timeout_s, 1.0, kLongestSeconds);
    client->link->SetLimit(std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3)));
  }
  Writer start;
  start.Int(static_cast<int64_t>(options.others.size()));
  for (const auto& [name, text] : options.others) start.Text(name).Text(text);
  const std::string body = client->link->Call(Kind::kStart, start);
  Reader answer(body);
  client->process = static_cast<int>(answer.Int());
  const auto count = static_cast<int>(answer.Int());
  client->topology.platform_name = kPlatformName;
  client->topology.platform_version = answer.Text();
  const std::string collectives(answer.Text());
  for (int process = 0; process < count; ++process) {
    auto& description = client->topology.descriptions.emplace_back(Describe(process, collectives));
    client->topology.list.push_back(description.get());
    const bool own = process == client->process;
    auto device = std::make_unique<abi::Device>(
        abi::Device{description.get(), own ? &client->memory : nullptr, client.get()});
    if (own) client->own = device.get();
    client->list.push_back(device.get());
    client->devices.push_back(std::move(device));
  }
  client->memory = {client->own, {client->own}};
  args.client = client.release();
  const std::lock_guard lock(living_mutex);
  living.insert(args.client);
}

void Destroy(abi::OfArgs<abi::Client>& args) {
  {
    const std::lock_guard lock(living_mutex);
    living.erase(args.thing);
  }
  delete args.thing;
}

void PlatformName(abi::GetTextArgs<abi::Client>& args) {
  const std::string& name = args.thing->topology.platform_name;
  args.elements = name.data();
  args.size = name.size();
}

void PlatformVersion(abi::GetTextArgs<abi::Client>& args) {
  const std::string& version = args.thing->topology.platform_version;
  args.elements = version.data();
  args.size = version.size();
}

void ProcessIndex(abi::GetArgs<abi::Client, int>& args) { args.value = args.thing->process; }

using ListArgs = abi::GetListArgs<abi::Client, abi::Device* const>;

void Devices(ListArgs& args) {
  args.elements = args.thing->list.data();
  args.size = args.thing->list.size();
}

void AddressableDevices(ListArgs& args) {
  args.elements = &args.thing->own;
  args.size = 1;
}

void LookupDevice(abi::ClientLookupArgs& args) {
  const auto count = static_cast<int>(args.client->list.size());
  if (args.id < 0 || args.id >= count) {
    throw Failure(abi::Code::kInvalidArgument, "the pod has no device " + std::to_string(args.id) +
                                                   ": it has " + std::to_string(count));
  }
  args.device = args.client->list[args.id];
}

void LookupAddressableDevice(abi::ClientLookupArgs& args) {
  if (args.id != 0) {
    throw Failure(abi::Code::kInvalidArgument, "the process has no device with the local id " +
                                                   std::to_string(args.id) +
                                                   ": the pod has one in each process, 0");
  }
  args.device = args.client->own;
}

void AddressableMemories(abi::GetListArgs<abi::Client, abi::Memory* const>& args) {
  args.elements = args.thing->memories;
  args.size = 1;
}

// Replicas first, one device each.
void DefaultAssignment(abi::DefaultAssignmentArgs& args) {
  const int wanted = args.num_replicas * args.num_partitions;
  const auto count = static_cast<int>(args.client->list.size());
  if (wanted > count || static_cast<size_t>(wanted) > args.size) {
    throw Failure(abi::Code::kInvalidArgument,
                  "a program of " + std::to_string(args.num_replicas) + " replicas and " +
                      std::to_string(args.num_partitions) + " partitions does not fit on the " +
                      std::to_string(count) + " devices of the pod");
  }
  for (int i = 0; i < wanted; ++i) args.assignment[i] = i;
}

}  // namespace

std::string CallLiving(Kind kind, const Writer& body) {
  std::vector<std::shared_ptr<Link>> links;
  {
    // Not while it waits for answers: what a rank says to its device meanwhile would wait as well.
    const std::lock_guard lock(living_mutex);
    for (const abi::Client* client : living) links.push_back(client->link);
  }
  std::string answers;
  for (const auto& link : links) answers += link->Call(kind, body);
  return answers;
}

void AddClient(Table& table) {
  Add<kClient_Create, abi::ClientCreateArgs, Create>(table);
  Add<kClient_Destroy, abi::OfArgs<abi::Client>, Destroy>(table);
  Add<kClient_PlatformName, abi::GetTextArgs<abi::Client>, PlatformName>(table);
  Add<kClient_PlatformVersion, abi::GetTextArgs<abi::Client>, PlatformVersion>(table);
  Add<kClient_ProcessIndex, abi::GetArgs<abi::Client, int>, ProcessIndex>(table);
  Add<kClient_Devices, ListArgs, Devices>(table);
  Add<kClient_AddressableDevices, ListArgs, AddressableDevices>(table);
  Add<kClient_LookupDevice, abi::ClientLookupArgs, LookupDevice>(table);
  Add<kClient_LookupAddressableDevice, abi::ClientLookupArgs, LookupAddressableDevice>(table);
  Add<kClient_AddressableMemories, abi::GetListArgs<abi::Client, abi::Memory* const>,
      AddressableMemories>(table);
  Add<kClient_DefaultDeviceAssignment, abi::DefaultAssignmentArgs, DefaultAssignment>(table);
}

}  // namespace xla_cc::pod

// At the end of the rank's process: torch_xla never destroys its client. True if the device process
// has ended; that of rank 0 serves the others, and stays until they have left.
extern "C" __attribute__((visibility("default"))) bool torch_xla_cc_pod_leave(int milliseconds) {
  const std::lock_guard lock(xla_cc::pod::living_mutex);
  bool all = true;
  for (auto* client : xla_cc::pod::living) {
    all = client->link->Leave(std::chrono::milliseconds(milliseconds)) && all;
  }
  return all;
}

// For how long a rank may wait in a collective of these, for as long as it is not longer than
// TORCH_XLA_CC_TIMEOUT_S.
extern "C" __attribute__((visibility("default"))) void torch_xla_cc_pod_limit(
    const int64_t* members, int64_t count, int64_t milliseconds) {
  using xla_cc::pod::Kind;
  const std::lock_guard lock(xla_cc::pod::living_mutex);
  const std::vector<int64_t> group(members, members + count);
  for (auto* client : xla_cc::pod::living) {
    client->link->Say(Kind::kLimit, xla_cc::pod::Writer().Ints(group).Int(milliseconds));
  }
}
