// The plugin's one symbol: the table of functions that torch_xla calls.
#include <utility>

#include "pod/entry.h"

namespace xla_cc::pod {
namespace {

constexpr const char* kNames[] = {
#define ENTRY(name) "PJRT_" #name,
#include "pod/abi/table.def"
#undef ENTRY
};

template <int function>
abi::Error* NotImplemented(void*) noexcept {
  try {
    ThrowNotImplemented(function);
  } catch (const Failure& failure) {
    return new abi::Error{failure};
  }
}

template <int... functions>
void FillWithNotImplemented(Table& table, std::integer_sequence<int, functions...>) {
  ((table.functions[functions] = &NotImplemented<functions>), ...);
}

Table MakeTable() {
  Table table = {};
  table.head.struct_size = sizeof(table);
  table.version.head.struct_size = sizeof(table.version);
  table.version.minor = 75;
  FillWithNotImplemented(table, std::make_integer_sequence<int, kFunctions>());
  AddEvents(table);
  AddClient(table);
  AddDevices(table);
  AddBuffers(table);
  AddPrograms(table);
  AddProgramFacts(table);
  AddTopology(table);
  AddProfiler(table);
  return table;
}

}  // namespace

const char* NameOf(int function) { return kNames[function]; }

void ThrowNotImplemented(int function) {
  throw Failure(abi::Code::kUnimplemented,
                std::string(NameOf(function)) + " is not implemented by the pod");
}

void CheckSize(int function, const abi::Head& head, size_t needed) {
  if (head.struct_size + alignof(abi::Head) - 1 >= needed) return;
  throw Failure(abi::Code::kInvalidArgument,
                std::string(NameOf(function)) + ": the caller's arguments have " +
                    std::to_string(head.struct_size) + " bytes, the pod needs " +
                    std::to_string(needed) + ": it is made for torch_xla 2.9.0");
}

}  // namespace xla_cc::pod

extern "C" __attribute__((visibility("default"))) const void* GetPjrtApi() {
  static const xla_cc::pod::Table table = xla_cc::pod::MakeTable();
  return &table;
}
