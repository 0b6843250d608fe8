// Buffers from the host, to the host, and copies.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "pod/abi/buffer.h"
#include "pod/api/buffers.h"
#include "pod/element_type.h"

namespace xla_cc::pod {
namespace {

constexpr size_t kInline = size_t{1} << 16;  // to so many bytes a tensor is part of the message

// Copies an array into a dense one, last dimension fastest.
void CopyDense(const char* from, char* to, size_t element, const std::vector<int64_t>& dims,
               const int64_t* strides, size_t from_dim = 0) {
  if (from_dim == dims.size()) {
    std::memcpy(to, from, element);
    return;
  }
  size_t row = element;
  for (size_t i = from_dim + 1; i < dims.size(); ++i) row *= static_cast<size_t>(dims[i]);
  for (int64_t i = 0; i < dims[from_dim]; ++i) {
    CopyDense(from + i * strides[from_dim], to + static_cast<size_t>(i) * row, element, dims,
              strides, from_dim + 1);
  }
}

bool IsDense(size_t element, const std::vector<int64_t>& dims, const int64_t* strides) {
  auto expected = static_cast<int64_t>(element);
  for (size_t i = dims.size(); i-- > 0;) {
    if (dims[i] != 1 && strides[i] != expected) return false;
    expected *= dims[i];
  }
  return true;
}

bool IsRowMajor(const abi::Layout& layout) {
  if (layout.kind != abi::Layout::Kind::kTiled || layout.tiled.num_tiles != 0) return false;
  const size_t rank = layout.tiled.minor_to_major_size;
  for (size_t i = 0; i < rank; ++i) {
    if (layout.tiled.minor_to_major[i] != static_cast<int64_t>(rank - 1 - i)) return false;
  }
  return true;
}

void RequireRowMajor(const abi::Layout* layout, const char* function) {
  if (layout == nullptr || IsRowMajor(*layout)) return;
  throw Failure(abi::Code::kUnimplemented,
                std::string(function) +
                    " with a layout of its own is not implemented by the pod: the last dimension "
                    "must be the fastest, without tiles");
}

void FromHost(abi::BufferFromHostArgs& args) {
  RequireRowMajor(args.layout, NameOf(kClient_BufferFromHostBuffer));
  abi::Client& client = *args.client;
  const size_t element = SizeOf(args.type);
  std::vector<int64_t> dims(args.dims, args.dims + args.num_dims);
  const size_t bytes = BytesOf(args.type, dims);
  const auto* data = static_cast<const char*>(args.data);
  const auto copy_to = [&](char* to) {
    if (bytes == 0) return;
    if (args.num_byte_strides == 0 || IsDense(element, dims, args.byte_strides)) {
      std::memcpy(to, data, bytes);
    } else {
      CopyDense(data, to, element, dims, args.byte_strides);
    }
  };

  client.FlushFreed();
  const int64_t id = client.NextId();
  Writer body;
  std::optional<Segment> segment;
  body.Int(id).Int(static_cast<int64_t>(args.type)).Ints(dims);
  if (bytes <= kInline) {
    std::string content(bytes, '\0');
    copy_to(content.data());
    body.Int(0).Text(content);
  } else {
    segment = client.link->TakeSegment(bytes);
    copy_to(segment->data);
    body.Int(segment->id).Text({});
  }
  client.link->Say(Kind::kPut, body);
  const auto lost = client.link->lost();
  if (lost && segment) client.link->ReturnSegment(segment->id);  // nobody else will
  args.done_with_host_buffer = new abi::Event{Occurrence::Already({})};
  args.buffer = NewBuffer(&client, id, args.type, std::move(dims), Occurrence::Already(lost));
}

// What torch_xla reads into is new each time, so its pages are made while it is written: 2 MiB a
// page take a fifth of the time of 4 KiB. A hint, which the kernel may not follow.
void AskForLargePages(char* data, size_t size) {
  constexpr uintptr_t kLarge = uintptr_t{2} << 20;
  const auto begin = (reinterpret_cast<uintptr_t>(data) + kLarge - 1) / kLarge * kLarge;
  const auto end = (reinterpret_cast<uintptr_t>(data) + size) / kLarge * kLarge;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

// Asks for bytes of a buffer, and returns what happens when they are there.
OccurrencePtr Fetch(const abi::Buffer& buffer, void* destination, size_t offset, size_t size) {
  RequireLiving(buffer, "reading");
  abi::Client& client = *buffer.client;
  auto fetched = std::make_shared<Occurrence>();
  Writer body;
  body.Int(buffer.id).Int(static_cast<int64_t>(offset)).Int(static_cast<int64_t>(size));
  if (size <= kInline) {
    client.link->Ask(Kind::kGet, body.Int(0), [fetched, destination, size](const Link::Answer& a) {
      if (!a.failure) std::memcpy(destination, a.body.data(), std::min(size, a.body.size()));
      fetched->Happen(a.failure);
    });
    return fetched;
  }
  AskForLargePages(static_cast<char*>(destination), size);
  const Segment segment = client.link->TakeSegment(size);
  Link* const link = client.link.get();
  link->Ask(Kind::kGet, body.Int(segment.id),
            [fetched, to = static_cast<char*>(destination), size, segment, link,
             done = size_t{0}](const Link::Answer& answer) mutable {
              const size_t end = answer.so_far != 0 ? std::min(answer.so_far, size) : size;
              if (!answer.failure && end > done) {
                std::memcpy(to + done, segment.data + done, end - done);
                done = end;
              }
              if (answer.so_far != 0) return;
              link->ReturnSegment(segment.id);
              fetched->Happen(answer.failure);
            });
  return fetched;
}

void ToHost(abi::BufferToHostArgs& args) {
  RequireRowMajor(args.host_layout, NameOf(kBuffer_ToHostBuffer));
  const size_t bytes = BytesOf(args.buffer->type, args.buffer->dims);
  if (args.destination == nullptr) {
    args.size = bytes;
    return;
  }
  if (args.size < bytes) {
    throw Failure(abi::Code::kInvalidArgument, "PJRT_Buffer_ToHostBuffer: the destination has " +
                                                   std::to_string(args.size) +
                                                   " bytes, the buffer " + std::to_string(bytes));
  }
  args.event = new abi::Event{Fetch(*args.buffer, args.destination, 0, bytes)};
}

void CopyRawToHost(abi::BufferCopyRawArgs& args) {
  const auto bytes = static_cast<int64_t>(BytesOf(args.buffer->type, args.buffer->dims));
  if (args.offset < 0 || args.size < 0 || args.offset > bytes - args.size) {
    throw Failure(abi::Code::kInvalidArgument, "PJRT_Buffer_CopyRawToHost: bytes " +
                                                   std::to_string(args.offset) + " to " +
                                                   std::to_string(args.offset + args.size) +
                                                   " of a buffer of " + std::to_string(bytes));
  }
  args.event =
      new abi::Event{Fetch(*args.buffer, args.destination, static_cast<size_t>(args.offset),
                           static_cast<size_t>(args.size))};
}

// The one place for a buffer of this process is the device that it is on: this is a second buffer.
template <class Place>
void Copy(abi::BufferCopyArgs<Place>& args) {
  RequireLiving(*args.buffer, "copying");
  abi::Client& client = *args.buffer->client;
  const int64_t id = client.NextId();
  client.link->Say(Kind::kCopy, Writer().Int(args.buffer->id).Int(id));
  args.copy = NewBuffer(&client, id, args.buffer->type, args.buffer->dims, args.buffer->ready);
}

void CopyToDevice(abi::BufferCopyArgs<abi::Device>& args) {
  if (args.place != args.buffer->client->own) {
    throw Failure(abi::Code::kUnimplemented,
                  "PJRT_Buffer_CopyToDevice to " + args.place->description->text +
                      " is not implemented by the pod: it belongs to another process. Use a "
                      "collective");
  }
  Copy(args);
}

}  // namespace

void AddTransfers(Table& table) {
  Add<kClient_BufferFromHostBuffer, abi::BufferFromHostArgs, FromHost>(table);
  Add<kBuffer_ToHostBuffer, abi::BufferToHostArgs, ToHost>(table);
  Add<kBuffer_CopyRawToHost, abi::BufferCopyRawArgs, CopyRawToHost>(table);
  Add<kBuffer_CopyToMemory, abi::BufferCopyArgs<abi::Memory>, Copy<abi::Memory>>(table);
  Add<kBuffer_CopyToDevice, abi::BufferCopyArgs<abi::Device>, CopyToDevice>(table);
}

}  // namespace xla_cc::pod
