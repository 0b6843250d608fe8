// The PJRT C API, version 0.75, as far as it is used: what all its functions share.
//
// No package ships a header of it. Names are of our own, layouts are the API's. Every structure of
// arguments begins with a Head, whose size tells how much of it the caller knows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace xla_cc::pod::abi {

struct Head {
  size_t struct_size;
  void* extensions;
};

// PJRT_Error_Code: those of absl.
enum class Code : int32_t {
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
};

// PJRT_Buffer_Type. What is not named is not taken.
enum class Type : int32_t {
  kInvalid = 0,
  kPred,
  kS8,
  kS16,
  kS32,
  kS64,
  kU8,
  kU16,
  kU32,
  kU64,
  kF16,
  kF32,
  kF64,
  kBF16,
  kC64,
  kC128,
  kF8E5M2,
  kF8E4M3FN,
  kF8E4M3B11FNUZ,
  kF8E5M2FNUZ,
  kF8E4M3FNUZ,
};

// PJRT_NamedValue
struct NamedValue {
  enum class Kind : int32_t { kString, kInt64, kInt64List, kFloat, kBool };

  Head head;
  const char* name;
  size_t name_size;
  Kind kind;
  union {
    const char* string;
    int64_t int64;
    const int64_t* int64_list;
    float float_value;
    bool bool_value;
  };
  size_t size;  // elements of a list, bytes of a string, 1
};
static_assert(sizeof(NamedValue) == 56);

// PJRT_Buffer_MemoryLayout
struct Layout {
  enum class Kind : int32_t { kTiled, kStrides };
  struct Tiled {
    Head head;
    const int64_t* minor_to_major;
    size_t minor_to_major_size;
    const int64_t* tile_dims;
    const size_t* tile_dim_sizes;
    size_t num_tiles;
  };
  struct Strides {
    Head head;
    const int64_t* byte_strides;
    size_t num_byte_strides;
  };

  Head head;
  union {
    Tiled tiled;
    Strides strides;
  };
  Kind kind;
};
static_assert(sizeof(Layout) == 80);

// What the functions hand out, which only the plugin looks into.
struct Error;
struct Event;
struct Client;
struct Device;
struct DeviceDescription;
struct Memory;
struct Buffer;
struct Executable;
struct LoadedExecutable;
struct Topology;

// Of many functions: a thing is asked for a text, a number, a list of others.
template <class Thing>
struct OfArgs {
  Head head;
  Thing* thing;
};

template <class Thing, class Value>
struct GetArgs {
  Head head;
  Thing* thing;
  Value value;  // out
};

template <class Thing, class Element>
struct GetListArgs {
  Head head;
  Thing* thing;
  Element* elements;  // out
  size_t size;        // out
};

template <class Thing>
using GetTextArgs = GetListArgs<Thing, const char>;

// The same, but its number comes first.
template <class Thing, class Element>
struct GetSizedArgs {
  Head head;
  Thing* thing;
  size_t size;        // out
  Element* elements;  // out
};

// Bytes that the plugin keeps until the caller calls `free` with `owner`.
template <class Thing>
struct SerializeArgs {
  Head head;
  Thing* thing;
  const char* bytes;          // out
  size_t size;                // out
  void* owner;                // out
  void (*free)(void* owner);  // out
};

}  // namespace xla_cc::pod::abi
