// What every node is verified and shaped against: the operands, and the target.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lowering/hlo/shape.h"
#include "lowering/status.h"
#include "lowering/target.h"

namespace xla_cc {

struct Call {
  const Target& target;
  std::vector<hlo::Shape> operands;
  int64_t world_size() const { return target.world_size; }
};

// (O1) at least one operand.
Status RequireOperands(const std::string& op, const Call& call);

// (O2) `dim` is an axis of every operand; a negative one is counted from the end and made positive,
// so that equal calls have equal keys. `scalars_as_vectors` lets 0-dimensional operands pass as
// one-element vectors.
Status ResolveAxis(const std::string& op, const std::string& argument, const Call& call,
                   bool scalars_as_vectors, int64_t* dim);

// (O3) the axis can be cut into `parts` equal blocks.
Status RequireDivisible(const std::string& op, const std::string& argument, const Call& call,
                        int64_t dim, int64_t parts);

// (G3) a count that callers may give must be the size of a group; it is then dropped, since the
// groups say it.
Status ResolveCount(const std::string& op, const std::string& argument, int64_t group_size,
                    std::optional<int64_t>* count);

// (O4) what so many ranks have together can be counted in bytes, also by way of a fallback: several
// times over.
Status RequireCountable(const std::string& op, const Call& call, int64_t times);

// The operand as an instruction with an axis takes it: a scalar becomes one element.
hlo::Shape AtLeastVector(hlo::Shape shape);

}  // namespace xla_cc
