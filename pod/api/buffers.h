// What the files of the api say to each other of buffers.
#pragma once

#include <vector>

#include "pod/entry.h"

namespace xla_cc::pod {

abi::Buffer* NewBuffer(abi::Client* client, int64_t id, abi::Type type, std::vector<int64_t> dims,
                       OccurrencePtr ready);
// Throws if it was deleted; `use` is what is done with it, "reading".
void RequireLiving(const abi::Buffer& buffer, const char* use);

void AddTransfers(Table& table);

}  // namespace xla_cc::pod
