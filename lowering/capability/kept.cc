#include "lowering/capability/kept.h"

#include <iterator>
#include <limits>
#include <optional>
#include <string_view>

#include "lowering/capability/bits.h"
#include "lowering/model/tiles.h"

namespace xla_cc {
namespace {

using hlo::ElementType;

constexpr ElementType kF32 = ElementType::kF32;
constexpr ElementType kBF16 = ElementType::kBF16;
constexpr std::optional<ElementType> kAny;
constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

struct Shapes {
  std::string_view device;
  Op op;
  int bits;
  std::optional<ElementType> type;
  int64_t least_result, vector, rows_inside, lanes_inside, rows_outside, lanes_outside;
};

struct Most {
  std::string_view device;
  int64_t tiles, filled_up;
};

struct Lost {
  std::string_view device;
  Op op;
  int64_t chips;
  bool square;
  int64_t below;
};

#define LOST(...)
#define MOST(...)
#define SHAPES(device, op, ...) {device, Op::op, __VA_ARGS__},
constexpr Shapes kShapes[] = {
#include "lowering/capability/kept.inc"
};
#undef SHAPES
#undef MOST

#define SHAPES(...)
#define MOST(device, ...) {device, __VA_ARGS__},
constexpr Most kMost[] = {
#include "lowering/capability/kept.inc"
};
#undef MOST
#undef LOST

#define MOST(...)
#define LOST(device, op, ...) {device, Op::op, __VA_ARGS__},
constexpr Lost kLost[] = {
#include "lowering/capability/kept.inc"
};
#undef LOST
#undef MOST
#undef SHAPES

bool IsOf(const Target& target, std::string_view device) {
  return target.device == device || KindOf(target.device) == device;
}

const Shapes* ShapesOf(const Instruction& instruction) {
  for (const Shapes& shapes : kShapes) {
    if (IsOf(instruction.target, shapes.device) && shapes.op == instruction.op &&
        shapes.bits == hlo::Bits(instruction.operand.type) &&
        shapes.type.value_or(instruction.operand.type) == instruction.operand.type) {
      return &shapes;
    }
  }
  return nullptr;
}

const Most& MostOf(const Target& target) {
  for (const Most& most : kMost) {
    if (IsOf(target, most.device)) return most;
  }
  return kMost[std::size(kMost) - 1];
}

}  // namespace

int64_t Instruction::ResultBytes() const {
  const int64_t bytes = operand.Bytes();
  return op == Op::kAllGather ? bytes * members : bytes / members;
}

bool IsEverKept(const Instruction& instruction) {
  const Shapes* shapes = ShapesOf(instruction);
  return shapes != nullptr && instruction.ResultBytes() >= shapes->least_result;
}

bool IsKeptInShape(const Instruction& instruction) {
  const Shapes* shapes = ShapesOf(instruction);
  if (shapes == nullptr) return true;
  const bool gathers = instruction.op == Op::kAllGather;
  int64_t dim = instruction.dim;
  const std::vector<int64_t> dims = Squeezed(instruction.operand.dims, &dim);
  const auto rank = static_cast<int64_t>(dims.size());
  const int64_t part = dims[dim] / (gathers ? 1 : instruction.members);
  if (rank == 1) return shapes->vector != 0 && part % shapes->vector == 0;
  if (gathers) return true;
  if (rank == 2 && dim == 0) return false;  // now and then it is: blocks of rows always are
  const Most& most = MostOf(instruction.target);
  if (instruction.filled_up && instruction.operand.Elements() > most.filled_up) return false;
  if (dim == rank - 1) {
    return part % shapes->lanes_inside == 0 && dims[rank - 2] >= kTileRows &&
           dims[dim] <= most.tiles * kTileLanes;
  }
  // Inside are tiles: narrow ones are mostly empty, and those of which a part is empty are cut.
  if (dim == rank - 2) {
    return part % shapes->rows_inside == 0 && dims[rank - 1] >= kTileLanes &&
           dims[dim] <= most.tiles * kTileRows;
  }
  const int64_t rows = rank == 3 ? shapes->rows_outside : kTileRows;
  const int64_t lanes = rank == 3 ? shapes->lanes_outside : kTileLanes;
  return dim == 0 && dims[rank - 2] % rows == 0 && dims[rank - 2] >= kTileRows &&
         dims[rank - 1] % lanes == 0 && dims[rank - 1] >= kTileLanes / 2;
}

namespace {

bool IsLost(const Instruction& instruction, int64_t result_bytes) {
  const Topology& topology = instruction.target.topology;
  if (!instruction.of_world || !topology.known()) return false;
  const bool square = topology.axes.size() > 1 && topology.axes[0].size == topology.axes[1].size;
  for (const Lost& lost : kLost) {
    if (IsOf(instruction.target, lost.device) && lost.op == instruction.op &&
        topology.Chips() >= lost.chips && (square || !lost.square) && result_bytes < lost.below) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool IsKeptInGroups(const Instruction& instruction) {
  return !IsLost(instruction, instruction.ResultBytes());
}

bool IsKeptInLists(const Instruction& instruction) { return !IsLost(instruction, 0); }

}  // namespace xla_cc
