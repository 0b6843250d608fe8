// How a function of ours becomes one of the API: sizes are checked, what is thrown is returned.
#pragma once

#include <new>
#include <string>

#include "pod/objects.h"

namespace xla_cc::pod {

enum Function : int {
#define ENTRY(name) k##name,
#include "pod/abi/table.def"
#undef ENTRY
  kFunctions,
};

const char* NameOf(int function);

using EntryPoint = abi::Error* (*)(void* args);

// Each file of the api adds its functions.
struct Table {
  abi::Head head;
  struct {
    abi::Head head;
    int major, minor;
  } version;
  EntryPoint functions[kFunctions];
};
static_assert(sizeof(Table) == 960, "PJRT_Api of version 0.75");

void AddEvents(Table& table);
void AddClient(Table& table);
void AddDevices(Table& table);
void AddBuffers(Table& table);
void AddPrograms(Table& table);
void AddProgramFacts(Table& table);
void AddTopology(Table& table);
void AddProfiler(Table& table);

[[noreturn]] void ThrowNotImplemented(int function);
void CheckSize(int function, const abi::Head& head, size_t needed);

template <int function, class Args, void (*body)(Args&)>
abi::Error* Entry(void* raw) noexcept {
  auto& args = *static_cast<Args*>(raw);
  try {
    CheckSize(function, args.head, sizeof(Args));
    body(args);
    return nullptr;
  } catch (const Failure& failure) {
    return new abi::Error{failure};
  } catch (const std::exception& error) {
    return new abi::Error{
        Failure(abi::Code::kInternal, std::string(NameOf(function)) + ": " + error.what())};
  }
}

template <int function, class Args, void (*body)(Args&)>
void Add(Table& table) {
  table.functions[function] = &Entry<function, Args, body>;
}

}  // namespace xla_cc::pod
