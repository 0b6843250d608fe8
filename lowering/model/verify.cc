#include "lowering/model/verify.h"

#include <algorithm>

#include "lowering/errors.h"

namespace xla_cc {

Status RequireOperands(const std::string& op, const Call& call) {
  if (!call.operands.empty()) return Status::Ok();
  return Refuse(
      {"O1", op, "operands", "[]", "at least one tensor", "Pass a tensor, or skip the call"});
}

Status ResolveAxis(const std::string& op, const std::string& argument, const Call& call,
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

Status RequireDivisible(const std::string& op, const std::string& argument, const Call& call,
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

Status ResolveCount(const std::string& op, const std::string& argument, int64_t group_size,
                    std::optional<int64_t>* count) {
  if (count->has_value() && **count != group_size) {
    return Refuse({"G3", op, argument, std::to_string(**count),
                   "the number of ranks in a group, " + std::to_string(group_size),
                   "Leave it out, or give groups of that size"});
  }
  count->reset();
  return Status::Ok();
}

Status RequireCountable(const std::string& op, const Call& call, int64_t times) {
  constexpr double kMostBytes = int64_t{1} << 56;
  double bytes = 0;
  for (const hlo::Shape& shape : call.operands) {
    double size = static_cast<double>(times) * hlo::Bits(shape.type) / 8;
    bool negative = false;
    for (int64_t dim : shape.dims) {
      negative = negative || dim < 0;
      // Without elements too, the other sizes are multiplied.
      size *= static_cast<double>(std::max<int64_t>(dim, 1));
    }
    bytes += size;
    if (!negative && bytes < kMostBytes) continue;
    return Refuse({"O4", op, "operands", shape.ToString(),
                   "of sizes of 0 or more, and all together of fewer than 2^56 bytes on " +
                       std::to_string(times) + " ranks",
                   "Pass fewer elements at a time"});
  }
  return Status::Ok();
}

hlo::Shape AtLeastVector(hlo::Shape shape) {
  if (shape.dims.empty()) shape.dims = {1};
  return shape;
}

}  // namespace xla_cc
