// PJRT_DeviceDescription_*, PJRT_Device_*, PJRT_Memory_*
#include <iterator>

#include "pod/abi/client.h"
#include "pod/entry.h"

namespace xla_cc::pod {
namespace {

constexpr std::string_view kMemoryKind = "device";

using Description = abi::DeviceDescription;

void Id(abi::GetArgs<Description, int>& args) { args.value = args.thing->id; }

void Attributes(abi::GetSizedArgs<Description, const abi::NamedValue>& args) {
  args.elements = args.thing->attributes;
  args.size = args.thing->collectives.empty() ? 1 : 2;
}

void DeviceKind(abi::GetTextArgs<Description>& args) {
  args.elements = args.thing->kind.data();
  args.size = args.thing->kind.size();
}

void Text(abi::GetTextArgs<Description>& args) {
  args.elements = args.thing->text.data();
  args.size = args.thing->text.size();
}

void GetDescription(abi::GetArgs<abi::Device, Description*>& args) {
  args.value = args.thing->description;
}

void IsAddressable(abi::GetArgs<abi::Device, bool>& args) {
  args.value = args.thing->memory != nullptr;
}

// One device in each process.
void LocalHardwareId(abi::GetArgs<abi::Device, int>& args) {
  args.value = args.thing->memory != nullptr ? 0 : -1;
}

void AddressableMemories(abi::GetListArgs<abi::Device, abi::Memory* const>& args) {
  args.elements = &args.thing->memory;
  args.size = args.thing->memory != nullptr ? 1 : 0;
}

void RequireOwn(const abi::Device& device, const char* what) {
  if (device.memory != nullptr) return;
  throw Failure(abi::Code::kInvalidArgument,
                std::string(what) + " of " + device.description->text + ": it belongs to process " +
                    std::to_string(device.description->id) + ", this is process " +
                    std::to_string(device.client->process));
}

void DefaultMemory(abi::GetArgs<abi::Device, abi::Memory*>& args) {
  RequireOwn(*args.thing, "the memory");
  args.value = args.thing->memory;
}

// What the device process uses, and what its machine has: its processes share that.
void MemoryStats(abi::MemoryStatsArgs& args) {
  RequireOwn(*args.device, "memory statistics");
  abi::Client& client = *args.device->client;
  client.FlushFreed();
  const std::string body = client.link->Call(Kind::kDeviceMemory, Writer());
  Reader answer(body);
  args.bytes_in_use = answer.Int();
  for (auto* figure = &args.peak_bytes_in_use; figure <= &args.peak_pool_bytes; ++figure) {
    *figure = {0, false};
  }
  args.peak_bytes_in_use = {answer.Int(), true};
  args.bytes_limit = {answer.Int(), true};
}

void MemoryId(abi::GetArgs<abi::Memory, int>& args) {
  args.value = args.thing->device->description->id;
}

void MemoryKind(abi::GetTextArgs<abi::Memory>& args) {
  args.elements = kMemoryKind.data();
  args.size = kMemoryKind.size();
}

void MemoryKindId(abi::GetArgs<abi::Memory, int>& args) { args.value = 0; }

void AddressableBy(abi::GetListArgs<abi::Memory, abi::Device* const>& args) {
  args.elements = args.thing->devices;
  args.size = std::size(args.thing->devices);
}

}  // namespace

void AddDevices(Table& table) {
  Add<kDeviceDescription_Id, abi::GetArgs<Description, int>, Id>(table);
  Add<kDeviceDescription_ProcessIndex, abi::GetArgs<Description, int>, Id>(table);
  Add<kDeviceDescription_Attributes, abi::GetSizedArgs<Description, const abi::NamedValue>,
      Attributes>(table);
  Add<kDeviceDescription_Kind, abi::GetTextArgs<Description>, DeviceKind>(table);
  Add<kDeviceDescription_DebugString, abi::GetTextArgs<Description>, Text>(table);
  Add<kDeviceDescription_ToString, abi::GetTextArgs<Description>, Text>(table);
  Add<kDevice_GetDescription, abi::GetArgs<abi::Device, Description*>, GetDescription>(table);
  Add<kDevice_IsAddressable, abi::GetArgs<abi::Device, bool>, IsAddressable>(table);
  Add<kDevice_LocalHardwareId, abi::GetArgs<abi::Device, int>, LocalHardwareId>(table);
  Add<kDevice_AddressableMemories, abi::GetListArgs<abi::Device, abi::Memory* const>,
      AddressableMemories>(table);
  Add<kDevice_DefaultMemory, abi::GetArgs<abi::Device, abi::Memory*>, DefaultMemory>(table);
  Add<kDevice_MemoryStats, abi::MemoryStatsArgs, MemoryStats>(table);
  Add<kMemory_Id, abi::GetArgs<abi::Memory, int>, MemoryId>(table);
  Add<kMemory_Kind, abi::GetTextArgs<abi::Memory>, MemoryKind>(table);
  Add<kMemory_Kind_Id, abi::GetArgs<abi::Memory, int>, MemoryKindId>(table);
  Add<kMemory_DebugString, abi::GetTextArgs<abi::Memory>, MemoryKind>(table);
  Add<kMemory_ToString, abi::GetTextArgs<abi::Memory>, MemoryKind>(table);
  Add<kMemory_AddressableByDevices, abi::GetListArgs<abi::Memory, abi::Device* const>,
      AddressableBy>(table);
}

}  // namespace xla_cc::pod
