// The table: what compilers do not take, and what is known without asking one.
#pragma once

#include <cstdint>
#include <string_view>

#include "lowering/capability/query.h"

namespace xla_cc {

enum class Count { kOne, kSeveral };  // operands of an instruction

// Whose limit it is: the compiler's, or that of ranks which run a program each, as threads do.
// Partitions run one program, and do not have the second.
enum class LimitOf { kCompiler, kThreads };

struct Row {
  std::string_view device;
  int op;
  uint32_t types;
  uint32_t kinds;  // meaningless for data movement
  uint32_t forms;
  uint32_t counts;
  int64_t least_ranks;  // the row holds from that many on
  LimitOf limit;
  const char* why;
};

// The row that holds a call, or a type that a program cannot even take as a parameter: then there
// is no fallback either. Null: nothing speaks against it.
const Row* FindRow(const Query& query, Count count);
const Row* FindRowOfParameter(const Query& query);

}  // namespace xla_cc
