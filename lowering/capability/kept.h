// Of which all_gathers and reduce_scatters a compiler keeps the instruction. Of the others it makes
// an all-reduce of everything: twice the bytes on the wire, and in memory what all ranks have.
#pragma once

#include <cstdint>

#include "lowering/hlo/shape.h"
#include "lowering/model/op.h"
#include "lowering/target.h"

namespace xla_cc {

struct Instruction {
  Op op;
  const Target& target;
  hlo::Shape operand;
  int64_t dim;
  int64_t members;  // of each group
  bool of_world;
  bool filled_up = false;  // behind a pad, and before what gives the parts their own places

  int64_t ResultBytes() const;
};

// Whether it is kept in some shape. Of integers and of f16, for instance, no reduce-scatter is.
bool IsEverKept(const Instruction& instruction);
// Whether it is kept in the shape that it has, if its groups are kept.
bool IsKeptInShape(const Instruction& instruction);
// Whether it is kept in its groups, in any shape.
bool IsKeptInGroups(const Instruction& instruction);
// Whether it is kept beside other operands where it is kept alone.
bool IsKeptInLists(const Instruction& instruction);

}  // namespace xla_cc
