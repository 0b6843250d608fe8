// The names by which jaxlib calls MPI, those of MPItrampoline, for ranks that meet in memory: what
// XLA's collectives use of it. names.def adds all else that jaxlib looks for and does not use.

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "pod/memory/group.h"
#include "pod/memory/messages.h"
#include "pod/memory/region.h"
#include "python/torch_xla_cc/_pod/pod_device/expected.h"

#pragma GCC visibility push(default)

#include "python/torch_xla_cc/_pod/pod_device/mpi_version.h"

namespace {

namespace memory = xla_cc::pod::memory;

using Handle = std::uintptr_t;
using Kind = memory::Message::Kind;
using memory::Reduction;
using memory::Type;

constexpr int kSuccess = 0, kFailed = 1;
constexpr Handle kWorld = 1;        // what follows are groups
constexpr size_t kSaidBytes = 256;  // XLA has room for so many

// The file that the ranks share. It stays mapped as long as the process lives.
std::byte* Mapped(int descriptor, int size) {
  const size_t bytes = memory::Region::Bytes(size);
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (mapped == MAP_FAILED) {
    throw memory::Failure(std::string("shared memory cannot be mapped: ") + std::strerror(errno));
  }
  madvise(mapped, bytes, MADV_NOHUGEPAGE);  // or what is touched might take 2 MiB each time
  madvise(mapped, bytes, MADV_DONTFORK);
  return static_cast<std::byte*>(mapped);
}

// All of this process: it is in one world, once.
struct Process {
  Process(int descriptor, int rank, int size) : region(Mapped(descriptor, size), rank, size) {}

  memory::Region region;
  memory::Windows windows{region};
  memory::Messages messages{region};
  std::vector<std::unique_ptr<memory::Group>> groups;
};

// Never freed: threads may wait in it when the process ends.
std::atomic<Process*> process{nullptr};
pod::Expected expected;
std::mutex making;  // groups
std::mutex saying;
std::string said;

void Say(const std::string& what) {
  const std::lock_guard<std::mutex> lock(saying);
  said = what;
}

// An error, where it fails; and from then on each call fails, and so does what waits.
template <typename Do>
int Done(const Do& work) {
  Process* const own = process;
  if (own == nullptr) {
    Say("this process has not begun to meet others in memory");
    return kFailed;
  }
  try {
    work(*own);
    return kSuccess;
  } catch (const std::exception& failure) {
    own->region.End(failure.what());
    Say(own->region.why());  // the first: XLA goes on after some of them
    return kFailed;
  }
}

memory::Group& GroupOf(Process& own, Handle comm) {
  const std::lock_guard<std::mutex> lock(making);
  if (comm <= kWorld || comm - kWorld > own.groups.size()) {
    throw memory::Failure("there is no group " + std::to_string(comm));
  }
  return *own.groups[comm - kWorld - 1];
}

Type TypeOf(Handle type) {
  const auto known = static_cast<Type>(type);
  if (memory::SizeOf(known) == 0) {
    throw memory::Failure("a type of MPI that is not known here: " + std::to_string(type));
  }
  return known;
}

// XLA counts by int: of more it would give the rest.
size_t CountOf(int count) {
  if (count >= 0) return count;
  throw memory::Failure("a collective of more elements than an int counts. Use gloo for it: " +
                        std::to_string(count));
}

size_t BytesOf(int count, Handle type) { return CountOf(count) * memory::SizeOf(TypeOf(type)); }

memory::Message Named(Kind kind, const memory::Group& group, size_t size) {
  return {kind, static_cast<uint64_t>(group.number()), size};
}

const std::byte* Given(const void* bytes) { return static_cast<const std::byte*>(bytes); }
std::byte* Result(void* bytes) { return static_cast<std::byte*>(bytes); }

}  // namespace

extern "C" {

Handle MPIABI_COMM_WORLD = kWorld;
Handle MPIABI_COMM_NULL = 0;
Handle MPIABI_REQUEST_NULL = 0;
Handle MPIABI_BYTE = static_cast<Handle>(Type::kByte);
Handle MPIABI_INT8_T = static_cast<Handle>(Type::kInt8);
Handle MPIABI_UINT8_T = static_cast<Handle>(Type::kUint8);
Handle MPIABI_INT16_T = static_cast<Handle>(Type::kInt16);
Handle MPIABI_UINT16_T = static_cast<Handle>(Type::kUint16);
Handle MPIABI_INT32_T = static_cast<Handle>(Type::kInt32);
Handle MPIABI_UINT32_T = static_cast<Handle>(Type::kUint32);
Handle MPIABI_INT64_T = static_cast<Handle>(Type::kInt64);
Handle MPIABI_UINT64_T = static_cast<Handle>(Type::kUint64);
Handle MPIABI_FLOAT = static_cast<Handle>(Type::kFloat);
Handle MPIABI_DOUBLE = static_cast<Handle>(Type::kDouble);
Handle MPIABI_C_COMPLEX = static_cast<Handle>(Type::kComplexFloat);
Handle MPIABI_C_FLOAT_COMPLEX = static_cast<Handle>(Type::kComplexFloat);
Handle MPIABI_C_DOUBLE_COMPLEX = static_cast<Handle>(Type::kComplexDouble);
Handle MPIABI_SUM = static_cast<Handle>(Reduction::kSum);
Handle MPIABI_PROD = static_cast<Handle>(Reduction::kProduct);
Handle MPIABI_MIN = static_cast<Handle>(Reduction::kMinimum);
Handle MPIABI_MAX = static_cast<Handle>(Reduction::kMaximum);
void* MPIABI_STATUS_IGNORE = nullptr;
int MPIABI_SUCCESS = kSuccess;
int MPIABI_UNDEFINED = -1;
int MPIABI_THREAD_FUNNELED = 1;

// Before all else: the file that the ranks share.
int pod_memory_begin(int descriptor, int rank, int size) {
  try {
    if (process != nullptr) throw memory::Failure("this process shares memory already");
    process = new Process(descriptor, rank, size);
    return kSuccess;
  } catch (const std::exception& failure) {
    Say(failure.what());
    return kFailed;
  }
}

// How large that file has to be.
std::uint64_t pod_memory_bytes(int size) { return memory::Region::Bytes(size); }
int pod_memory_most_ranks() { return memory::kMostRanks; }

// Whoever waits gets an error that says so.
void pod_memory_end(const char* why) {
  Process* const own = process;
  if (own != nullptr) own->region.End(why);
}

// Until no more bytes than that wait in this process to be sent, or all has ended; or for so long,
// and then it is 0.
int pod_memory_wait_for_room(std::uint64_t bytes, std::uint64_t milliseconds) {
  Process* const own = process;
  return own == nullptr || own->messages.WaitForRoom(bytes, std::chrono::milliseconds(milliseconds))
             ? 1
             : 0;
}

// That rank has left, and receives nothing any more.
void pod_memory_gone(int rank) {
  Process* const own = process;
  if (own != nullptr) own->messages.Drop(rank);
}

// The groups of a program that is about to run, in the order in which it meets in them.
void pod_expect(const int* ranks, const int* sizes, const int* colors, int count) {
  expected.Set(ranks, sizes, colors, count);
}

int MPIABI_Init_thread(int*, char***, int, int* provided) {
  *provided = MPIABI_THREAD_FUNNELED;
  return kSuccess;
}

int MPIABI_Is_thread_main(int* flag) {
  *flag = 1;
  return kSuccess;
}

int MPIABI_Finalize() { return kSuccess; }

int MPIABI_Comm_rank(Handle comm, int* rank) {
  *rank = 0;  // XLA does not look whether it failed; what it asks next does
  return Done([&](Process& own) {
    *rank = comm == kWorld ? own.region.rank() : GroupOf(own, comm).place();
  });
}

int MPIABI_Comm_size(Handle comm, int* size) {
  *size = 1;
  return Done([&](Process& own) {
    *size = comm == kWorld ? own.region.size() : GroupOf(own, comm).size();
  });
}

int MPIABI_Comm_split(Handle, int color, int key, Handle* result) {
  *result = MPIABI_COMM_NULL;
  return Done([&](Process& own) {
    const std::lock_guard<std::mutex> lock(making);
    const memory::Ranks ranks = expected.Wanted(color, key, own.region.rank());
    if (ranks.empty()) {
      throw memory::Failure("XLA wants a group whose first device is " + std::to_string(color) +
                            " and in which this rank is at " + std::to_string(key) +
                            ", and the program has none: a fault of the pod. Use gloo");
    }
    own.groups.push_back(std::make_unique<memory::Group>(own.region, own.windows, ranks, key));
    *result = kWorld + own.groups.size();
  });
}

// A group stays: it counts how often it has met.
int MPIABI_Comm_free(Handle* comm) {
  *comm = MPIABI_COMM_NULL;
  return kSuccess;
}

int MPIABI_Allreduce(const void* send, void* receive, int count, Handle type, Handle op,
                     Handle comm) {
  return Done([&](Process& own) {
    GroupOf(own, comm).AllReduce(Given(send), Result(receive), CountOf(count), TypeOf(type),
                                 static_cast<Reduction>(op));
  });
}

int MPIABI_Reduce_scatter(const void* send, void* receive, const int* counts, Handle type,
                          Handle op, Handle comm) {
  return Done([&](Process& own) {
    memory::Group& group = GroupOf(own, comm);
    for (int i = 1; i < group.size(); ++i) {
      if (counts[i] == counts[0]) continue;
      throw memory::Failure("a reduce_scatter of unequal parts, " + std::to_string(counts[0]) +
                            " and " + std::to_string(counts[i]) + ", which XLA has none of");
    }
    group.ReduceScatter(Given(send), Result(receive), CountOf(counts[0]), TypeOf(type),
                        static_cast<Reduction>(op));
  });
}

int MPIABI_Allgather(const void* send, int count, Handle type, void* receive, int, Handle,
                     Handle comm) {
  return Done([&](Process& own) {
    GroupOf(own, comm).AllGather(Given(send), Result(receive), BytesOf(count, type));
  });
}

// Where one of several messages fails the others are let go as well: then all has ended.
int MPIABI_Isend(const void* bytes, int count, Handle type, int to, int, Handle comm,
                 Handle* request) {
  return Done([&](Process& own) {
    const memory::Group& group = GroupOf(own, comm);
    *request = own.messages.Send(Named(Kind::kPermute, group, BytesOf(count, type)),
                                 group.ranks().at(to), Given(bytes));
  });
}

int MPIABI_Irecv(void* bytes, int count, Handle type, int from, int, Handle comm, Handle* request) {
  return Done([&](Process& own) {
    const memory::Group& group = GroupOf(own, comm);
    *request = own.messages.Receive(Named(Kind::kPermute, group, BytesOf(count, type)),
                                    group.ranks().at(from), Result(bytes));
  });
}

int MPIABI_Wait(Handle* request, void*) {
  return Done([&](Process& own) {
    own.messages.Wait(*request);
    *request = MPIABI_REQUEST_NULL;
  });
}

int MPIABI_Sendrecv(const void* send, int send_count, Handle send_type, int to, int, void* receive,
                    int receive_count, Handle receive_type, int from, int, Handle comm, void*) {
  return Done([&](Process& own) {
    const memory::Group& group = GroupOf(own, comm);
    const auto received =
        own.messages.Receive(Named(Kind::kAllToAll, group, BytesOf(receive_count, receive_type)),
                             group.ranks().at(from), Result(receive));
    const auto sent =
        own.messages.Send(Named(Kind::kAllToAll, group, BytesOf(send_count, send_type)),
                          group.ranks().at(to), Given(send));
    own.messages.Wait(sent);
    own.messages.Wait(received);
  });
}

int MPIABI_Error_string(int, char* text, int* size) {
  const std::lock_guard<std::mutex> lock(saying);
  const int whole = std::snprintf(text, kSaidBytes, "%s", said.c_str());
  *size = std::min(whole, static_cast<int>(kSaidBytes) - 1);
  return kSuccess;
}

int pod_memory_refuses() { return kFailed; }
Handle pod_memory_nothing = 0;

#define FUNCTION(name) int name() __attribute__((alias("pod_memory_refuses")));
#define CONSTANT(name) extern Handle name __attribute__((alias("pod_memory_nothing")));
#include "pod/memory/names.def"

}  // extern "C"

#pragma GCC visibility pop
