// What every node is verified and shaped against: the operands, and the target.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lowering/errors.h"
#include "lowering/hlo/shape.h"
#include "lowering/target.h"

namespace xla_cc {

struct Call {
  const Target& target;
  std::vector<hlo::Shape> operands;
  int64_t world_size() const { return target.world_size; }
};

// (O1) at least one operand.
inline Status RequireOperands(const std::string& op, const Call& call) {
  if (!call.operands.empty()) return Status::Ok();
  return Refuse(
      {"O1", op, "operands", "[]", "at least one tensor", "Pass a tensor, or skip the call"});
}

// (O2) `dim` is an axis of every operand; a negative one is counted from the end and made positive,
// so that equal calls have equal keys. `scalars_as_vectors` lets 0-dimensional operands pass as
// one-element vectors.
inline Status ResolveAxis(const std::string& op, const std::string& argument, const Call& call,
                          bool scalars_as_vectors, int64_t* dim) {
  const int64_t given = *dim;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const hlo::Shape& shape = call.operands[i];
    const int64_t rank = shape.rank() == 0 && scalars_as_vectors ? 1 : shape.rank();
    const int64_t axis = given < 0 ? given + rank : given;
    if (axis < 0 || axis >= rank) {
      return Refuse(
          {"O2", op, argument, std::to_string(given),
           "an axis of operand " + std::to_string(i) + ", " + shape.ToString() +
               (rank == 0 ? ", which has none"
                          : ": " + std::to_string(-rank) + " to " + std::to_string(rank - 1)),
           rank == 0 ? "Reshape the scalar to one element" : "Name an axis that it has"});
    }
    if (given < 0 && i > 0 && axis != *dim) {
      return Refuse({"O2", op, argument, std::to_string(given),
                     "one axis for all operands, and it counts from the end of different ranks",
                     "Give it as a positive number, or call once per rank of tensor"});
    }
    if (i == 0) *dim = axis;
  }
  return Status::Ok();
}

// (O3) the axis can be cut into `parts` equal blocks.
inline Status RequireDivisible(const std::string& op, const std::string& argument, const Call& call,
                               int64_t dim, int64_t parts) {
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const int64_t size = call.operands[i].dims[dim];
    if (size % parts == 0) continue;
    const int64_t next = (size / parts + 1) * parts;
    return Refuse({"O3", op, argument, std::to_string(dim),
                   "an axis of a size divisible by " + std::to_string(parts) +
                       ", the ranks of a group, and operand " + std::to_string(i) + ", " +
                       call.operands[i].ToString() + ", has " + std::to_string(size) + " there",
                   "Pad it to " + std::to_string(next) + ", the next size that divides"});
  }
  return Status::Ok();
}

// (G3) a count that callers may give must be the size of a group; it is then dropped, since the
// groups say it.
inline Status ResolveCount(const std::string& op, const std::string& argument, int64_t group_size,
                           std::optional<int64_t>* count) {
  if (count->has_value() && **count != group_size) {
    return Refuse({"G3", op, argument, std::to_string(**count),
                   "the number of ranks in a group, " + std::to_string(group_size),
                   "Leave it out, or give groups of that size"});
  }
  count->reset();
  return Status::Ok();
}

// (O4) what is gathered still has a size that XLA can count.
inline Status RequireCountable(const std::string& op, const Call& call, int64_t times) {
  constexpr double kLargest = 9.0e18 / 16;
  for (const hlo::Shape& shape : call.operands) {
    double elements = static_cast<double>(times);
    for (int64_t dim : shape.dims) elements *= static_cast<double>(dim);
    if (elements < kLargest) continue;
    return Refuse({"O4", op, "operands", shape.ToString(),
                   "smaller than 2^59 elements when gathered", "Gather it in parts"});
  }
  return Status::Ok();
}

// The operand as an instruction with an axis takes it: a scalar becomes one element.
inline hlo::Shape AtLeastVector(hlo::Shape shape) {
  if (shape.dims.empty()) shape.dims = {1};
  return shape;
}

}  // namespace xla_cc
