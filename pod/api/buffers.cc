// PJRT_Buffer_*: what is known of a buffer without asking the device process.
#include "pod/api/buffers.h"

#include "pod/abi/buffer.h"
#include "pod/element_type.h"
#include "pod/entry.h"

namespace xla_cc::pod {

abi::Buffer* NewBuffer(abi::Client* client, int64_t id, abi::Type type, std::vector<int64_t> dims,
                       OccurrencePtr ready) {
  std::vector<int64_t> minor_to_major(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    minor_to_major[i] = static_cast<int64_t>(dims.size() - 1 - i);
  }
  return new abi::Buffer{client,          id, type, std::move(dims), std::move(minor_to_major),
                         std::move(ready)};
}

void RequireLiving(const abi::Buffer& buffer, const char* use) {
  if (!buffer.deleted) return;
  throw Failure(abi::Code::kInvalidArgument,
                std::string(use) + " a buffer that was deleted, or donated to a program");
}

namespace {

void Delete(abi::Buffer& buffer) {
  if (buffer.deleted.exchange(true)) return;
  buffer.client->Free(buffer.id, BytesOf(buffer.type, buffer.dims));
}

void BufferDestroy(abi::OfArgs<abi::Buffer>& args) {
  if (args.thing == nullptr) return;
  Delete(*args.thing);
  delete args.thing;
}

void BufferDelete(abi::OfArgs<abi::Buffer>& args) { Delete(*args.thing); }

void IsDeleted(abi::GetArgs<abi::Buffer, bool>& args) { args.value = args.thing->deleted; }

void ElementType(abi::GetArgs<abi::Buffer, abi::Type>& args) { args.value = args.thing->type; }

void Dimensions(abi::GetListArgs<abi::Buffer, const int64_t>& args) {
  args.elements = args.thing->dims.data();
  args.size = args.thing->dims.size();
}

// All sizes are static: the pod refuses programs with others.
void DynamicDimensions(abi::GetListArgs<abi::Buffer, const size_t>& args) {
  args.elements = nullptr;
  args.size = 0;
}

void MemoryLayout(abi::BufferLayoutArgs& args) {
  args.layout = {};
  args.layout.head.struct_size = sizeof(args.layout);
  args.layout.kind = abi::Layout::Kind::kTiled;
  args.layout.tiled.head.struct_size = sizeof(args.layout.tiled);
  args.layout.tiled.minor_to_major = args.buffer->minor_to_major.data();
  args.layout.tiled.minor_to_major_size = args.buffer->minor_to_major.size();
}

void SizeInBytes(abi::GetArgs<abi::Buffer, size_t>& args) {
  args.value = BytesOf(args.thing->type, args.thing->dims);
}

void DeviceOf(abi::GetArgs<abi::Buffer, abi::Device*>& args) {
  args.value = args.thing->client->own;
}

void MemoryOf(abi::GetArgs<abi::Buffer, abi::Memory*>& args) {
  args.value = &args.thing->client->memory;
}

// Its memory is that of another process.
void IsOnCpu(abi::GetArgs<abi::Buffer, bool>& args) { args.value = false; }

void ReadyEvent(abi::GetArgs<abi::Buffer, abi::Event*>& args) {
  OccurrencePtr ready = args.thing->ready;
  if (args.thing->deleted) {
    ready = Occurrence::Already(
        Failure(abi::Code::kInvalidArgument, "the buffer was deleted, or donated to a program"));
  }
  args.value = new abi::Event{std::move(ready)};
}

}  // namespace

void AddBuffers(Table& table) {
  using ListArgs = abi::GetListArgs<abi::Buffer, const int64_t>;
  Add<kBuffer_Destroy, abi::OfArgs<abi::Buffer>, BufferDestroy>(table);
  Add<kBuffer_Delete, abi::OfArgs<abi::Buffer>, BufferDelete>(table);
  Add<kBuffer_IsDeleted, abi::GetArgs<abi::Buffer, bool>, IsDeleted>(table);
  Add<kBuffer_ElementType, abi::GetArgs<abi::Buffer, abi::Type>, ElementType>(table);
  Add<kBuffer_Dimensions, ListArgs, Dimensions>(table);
  Add<kBuffer_UnpaddedDimensions, ListArgs, Dimensions>(table);
  Add<kBuffer_DynamicDimensionIndices, abi::GetListArgs<abi::Buffer, const size_t>,
      DynamicDimensions>(table);
  Add<kBuffer_GetMemoryLayout, abi::BufferLayoutArgs, MemoryLayout>(table);
  Add<kBuffer_OnDeviceSizeInBytes, abi::GetArgs<abi::Buffer, size_t>, SizeInBytes>(table);
  Add<kBuffer_Device, abi::GetArgs<abi::Buffer, abi::Device*>, DeviceOf>(table);
  Add<kBuffer_Memory, abi::GetArgs<abi::Buffer, abi::Memory*>, MemoryOf>(table);
  Add<kBuffer_IsOnCpu, abi::GetArgs<abi::Buffer, bool>, IsOnCpu>(table);
  Add<kBuffer_ReadyEvent, abi::GetArgs<abi::Buffer, abi::Event*>, ReadyEvent>(table);
  AddTransfers(table);
}

}  // namespace xla_cc::pod
