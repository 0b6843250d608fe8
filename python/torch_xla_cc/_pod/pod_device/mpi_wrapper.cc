// An MPI library as jaxlib wants it: by the names of MPItrampoline (MPIABI_*), with handles of 8
// bytes whatever the library's own are. It is compiled against the MPI that is there
// (mpi_library.py), which adds names for all that jaxlib asks for and never uses.
//
// Two things are not as in MPI. XLA splits the world where it wants a group, which waits for all
// ranks, and only the members come: here a group is made of its members, whom `pod_expect` says
// before. And nothing polls without pause: a rank that waits leaves the processor to those that
// compute, which may be on the same machine, and can be told from one that computes.

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "expected.h"
#include "mpi_version.h"

namespace {

using Handle = std::uintptr_t;
using pod::Expected;
using pod::Ranks;

constexpr int kYields = 200;
constexpr std::chrono::microseconds kShortest{20};
constexpr std::chrono::microseconds kLongest{1000};
// After this it waits for a rank, and not for a message.
constexpr std::chrono::seconds kLong{1};
constexpr std::chrono::microseconds kLongestThen{10000};

// A handle of the library: a pointer in Open MPI, an int in MPICH.
template <typename T>
T Own(Handle handle) {
  static_assert(sizeof(T) <= sizeof(Handle));
  T own;
  std::memcpy(&own, &handle, sizeof(T));
  return own;
}

template <typename T>
Handle Theirs(T own) {
  Handle handle = 0;
  std::memcpy(&handle, &own, sizeof(T));
  return handle;
}

MPI_Comm Comm(Handle handle) { return Own<MPI_Comm>(handle); }
MPI_Datatype Type(Handle handle) { return Own<MPI_Datatype>(handle); }

std::atomic<int> waiting{0};

int Waited(MPI_Request* requests, int count) {
  ++waiting;
  std::chrono::microseconds pause = kShortest;
  const auto began = std::chrono::steady_clock::now();
  for (int tries = 0;; ++tries) {
    int done = 0;
    const int error = MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE);
    if (error != MPI_SUCCESS || done) {
      --waiting;
      return error;
    }
    if (tries < kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(pause);
      const bool is_long = std::chrono::steady_clock::now() - began > kLong;
      pause = std::min(2 * pause, is_long ? kLongestThen : kLongest);
    }
  }
}

// Starts something that is then waited for.
template <typename Start>
int Done(const Start& start) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int error = start(&request);
  return error == MPI_SUCCESS ? Waited(&request, 1) : error;
}

// The smaller or larger of floats, on all ranks the same whatever the order: NaNs are left out, as
// gloo does, and -0 is less than 0.
template <typename T, bool kLargest>
void Extreme(void* given, void* so_far, int* count, MPI_Datatype*) {
  const T* x = static_cast<const T*>(given);
  T* y = static_cast<T*>(so_far);
  for (int i = 0; i < *count; ++i) {
    const bool equal = x[i] == y[i];
    const bool less = equal ? std::signbit(x[i]) : x[i] < y[i];
    const bool take = std::isnan(y[i]) || (!std::isnan(x[i]) && less != kLargest);
    if (take) y[i] = x[i];
  }
}

struct Extremes {
  MPI_Op smallest = MPI_OP_NULL, largest = MPI_OP_NULL;
};
Extremes of_float, of_double;

template <typename T>
int Make(Extremes* extremes) {
  const int error = MPI_Op_create(&Extreme<T, false>, 1, &extremes->smallest);
  return error == MPI_SUCCESS ? MPI_Op_create(&Extreme<T, true>, 1, &extremes->largest) : error;
}

MPI_Op Reduction(Handle type, Handle op) {
  const MPI_Op own = Own<MPI_Op>(op);
  const bool is_float = Type(type) == MPI_FLOAT;
  if (!is_float && Type(type) != MPI_DOUBLE) return own;
  const Extremes& extremes = is_float ? of_float : of_double;
  if (own == MPI_MIN) return extremes.smallest;
  return own == MPI_MAX ? extremes.largest : own;
}

const void* OrInPlace(const void* send, const void* receive) {
  return send == receive ? MPI_IN_PLACE : send;
}

Expected expected;

MPI_Comm control = MPI_COMM_NULL;  // a second world, for what follows

// Waits until all of a group are here: to make a communicator MPI waits for them without a pause.
int Met(const Ranks& ranks, int key) {
  constexpr int kHere = 1, kGo = 2;
  const int others = static_cast<int>(ranks.size()) - 1;
  if (others == 0) return MPI_SUCCESS;
  std::vector<MPI_Request> requests(key == 0 ? others : 2, MPI_REQUEST_NULL);
  int error = MPI_SUCCESS;
  if (key > 0) {
    error = MPI_Isend(nullptr, 0, MPI_BYTE, ranks[0], kHere, control, &requests[0]);
    if (error != MPI_SUCCESS) return error;
    error = MPI_Irecv(nullptr, 0, MPI_BYTE, ranks[0], kGo, control, &requests[1]);
    return error == MPI_SUCCESS ? Waited(requests.data(), 2) : error;
  }
  for (int i = 0; i < others && error == MPI_SUCCESS; ++i) {
    error = MPI_Irecv(nullptr, 0, MPI_BYTE, ranks[i + 1], kHere, control, &requests[i]);
  }
  if (error == MPI_SUCCESS) error = Waited(requests.data(), others);
  for (int i = 0; i < others && error == MPI_SUCCESS; ++i) {
    error = MPI_Isend(nullptr, 0, MPI_BYTE, ranks[i + 1], kGo, control, &requests[i]);
  }
  return error == MPI_SUCCESS ? Waited(requests.data(), others) : error;
}

int Begun(int* provided) {
  int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, provided);
  if (error != MPI_SUCCESS) return error;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  error = MPI_Comm_dup(MPI_COMM_WORLD, &control);
  if (error != MPI_SUCCESS) return error;
  MPI_Comm_set_errhandler(control, MPI_ERRORS_RETURN);
  error = Make<float>(&of_float);
  return error == MPI_SUCCESS ? Make<double>(&of_double) : error;
}

}  // namespace

extern "C" {

Handle MPIABI_COMM_WORLD = Theirs(MPI_COMM_WORLD);
Handle MPIABI_COMM_NULL = Theirs(MPI_COMM_NULL);
Handle MPIABI_REQUEST_NULL = Theirs(MPI_REQUEST_NULL);
Handle MPIABI_BYTE = Theirs(MPI_BYTE);
Handle MPIABI_INT8_T = Theirs(MPI_INT8_T);
Handle MPIABI_UINT8_T = Theirs(MPI_UINT8_T);
Handle MPIABI_INT16_T = Theirs(MPI_INT16_T);
Handle MPIABI_UINT16_T = Theirs(MPI_UINT16_T);
Handle MPIABI_INT32_T = Theirs(MPI_INT32_T);
Handle MPIABI_UINT32_T = Theirs(MPI_UINT32_T);
Handle MPIABI_INT64_T = Theirs(MPI_INT64_T);
Handle MPIABI_UINT64_T = Theirs(MPI_UINT64_T);
Handle MPIABI_FLOAT = Theirs(MPI_FLOAT);
Handle MPIABI_DOUBLE = Theirs(MPI_DOUBLE);
Handle MPIABI_C_COMPLEX = Theirs(MPI_C_COMPLEX);
Handle MPIABI_C_FLOAT_COMPLEX = Theirs(MPI_C_FLOAT_COMPLEX);
Handle MPIABI_C_DOUBLE_COMPLEX = Theirs(MPI_C_DOUBLE_COMPLEX);
Handle MPIABI_SUM = Theirs(MPI_SUM);
Handle MPIABI_PROD = Theirs(MPI_PROD);
Handle MPIABI_MIN = Theirs(MPI_MIN);
Handle MPIABI_MAX = Theirs(MPI_MAX);
void* MPIABI_STATUS_IGNORE = nullptr;
int MPIABI_SUCCESS = MPI_SUCCESS;
int MPIABI_UNDEFINED = MPI_UNDEFINED;
int MPIABI_THREAD_FUNNELED = MPI_THREAD_FUNNELED;
int pod_mpi_serialized = MPI_THREAD_SERIALIZED;  // what is needed

// The groups of a program that is about to run, in the order in which it meets in them.
void pod_expect(const int* ranks, const int* sizes, const int* colors, int count) {
  expected.Set(ranks, sizes, colors, count);
}

// What rank 0 gives, in `bytes`.
int pod_mpi_broadcast(void* bytes, int size) {
  return Done([&](MPI_Request* request) {
    return MPI_Ibcast(bytes, size, MPI_BYTE, 0, MPI_COMM_WORLD, request);
  });
}

// For all threads: programs do not run on the one that begins. jaxlib does it once more.
int MPIABI_Init_thread(int*, char***, int, int* provided) {
  int begun = 0;
  const int error = MPI_Initialized(&begun);
  if (error != MPI_SUCCESS) return error;
  return begun ? MPI_Query_thread(provided) : Begun(provided);
}

int MPIABI_Is_thread_main(int* flag) {
  *flag = 1;
  return MPI_SUCCESS;
}

// Where one still waits the others do not come to an end in order, and MPI would abort.
int MPIABI_Finalize() { return waiting ? MPI_ERR_PENDING : MPI_Finalize(); }

int MPIABI_Comm_rank(Handle comm, int* rank) { return MPI_Comm_rank(Comm(comm), rank); }
int MPIABI_Comm_size(Handle comm, int* size) { return MPI_Comm_size(Comm(comm), size); }

int MPIABI_Comm_split(Handle, int color, int key, Handle* result) {
  *result = MPIABI_COMM_NULL;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const Ranks ranks = expected.Wanted(color, key, rank);
  if (ranks.empty()) return MPI_ERR_GROUP;
  if (const int error = Met(ranks, key); error != MPI_SUCCESS) return error;
  MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  int error = MPI_Comm_group(MPI_COMM_WORLD, &world);
  if (error != MPI_SUCCESS) return error;
  error = MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &group);
  MPI_Group_free(&world);
  if (error != MPI_SUCCESS) return error;
  error = MPI_Comm_create_group(MPI_COMM_WORLD, group, 0, &comm);
  MPI_Group_free(&group);
  if (error != MPI_SUCCESS) return error;
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  *result = Theirs(comm);
  return MPI_SUCCESS;
}

int MPIABI_Comm_free(Handle* comm) {
  MPI_Comm own = Comm(*comm);
  const int error = own == MPI_COMM_NULL ? MPI_SUCCESS : MPI_Comm_free(&own);
  *comm = MPIABI_COMM_NULL;
  return error;
}

int MPIABI_Allreduce(const void* send, void* receive, int count, Handle type, Handle op,
                     Handle comm) {
  return Done([&](MPI_Request* request) {
    return MPI_Iallreduce(OrInPlace(send, receive), receive, count, Type(type), Reduction(type, op),
                          Comm(comm), request);
  });
}

int MPIABI_Reduce_scatter(const void* send, void* receive, const int* counts, Handle type,
                          Handle op, Handle comm) {
  return Done([&](MPI_Request* request) {
    return MPI_Ireduce_scatter(OrInPlace(send, receive), receive, counts, Type(type),
                               Reduction(type, op), Comm(comm), request);
  });
}

int MPIABI_Allgather(const void* send, int send_count, Handle send_type, void* receive,
                     int receive_count, Handle receive_type, Handle comm) {
  return Done([&](MPI_Request* request) {
    return MPI_Iallgather(send, send_count, Type(send_type), receive, receive_count,
                          Type(receive_type), Comm(comm), request);
  });
}

int MPIABI_Isend(const void* bytes, int count, Handle type, int to, int tag, Handle comm,
                 Handle* request) {
  MPI_Request own = MPI_REQUEST_NULL;
  const int error = MPI_Isend(bytes, count, Type(type), to, tag, Comm(comm), &own);
  *request = Theirs(own);
  return error;
}

int MPIABI_Irecv(void* bytes, int count, Handle type, int from, int tag, Handle comm,
                 Handle* request) {
  MPI_Request own = MPI_REQUEST_NULL;
  const int error = MPI_Irecv(bytes, count, Type(type), from, tag, Comm(comm), &own);
  *request = Theirs(own);
  return error;
}

int MPIABI_Wait(Handle* request, void*) {
  MPI_Request own = Own<MPI_Request>(*request);
  const int error = Waited(&own, 1);
  *request = Theirs(own);
  return error;
}

int MPIABI_Sendrecv(const void* send, int send_count, Handle send_type, int to, int send_tag,
                    void* receive, int receive_count, Handle receive_type, int from,
                    int receive_tag, Handle comm, void*) {
  MPI_Request both[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  int error = MPI_Irecv(receive, receive_count, Type(receive_type), from, receive_tag, Comm(comm),
                        &both[0]);
  if (error != MPI_SUCCESS) return error;
  error = MPI_Isend(send, send_count, Type(send_type), to, send_tag, Comm(comm), &both[1]);
  return error == MPI_SUCCESS ? Waited(both, 2) : error;
}

int MPIABI_Error_string(int error, char* text, int* size) {
  return MPI_Error_string(error, text, size);
}

// Whatever else jaxlib asks for, and does not use.
int pod_mpi_refuses() { return MPI_ERR_OTHER; }
Handle pod_mpi_nothing = 0;

}  // extern "C"
