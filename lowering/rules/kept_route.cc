#include "lowering/rules/kept_route.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lowering/rules/filled_up.h"

namespace xla_cc {
namespace {

constexpr double kHopUs = 1;    // from chip to chip, as vendors and users of pods measure it
constexpr double kStartUs = 2;  // of an instruction of its own

// What a rank's block is cut into, as [rows, columns].
Block BlockOf(const Instruction& instruction) {
  std::vector<int64_t> part = instruction.operand.dims;
  const bool scatters = instruction.op == Op::kReduceScatter;
  if (scatters) part[instruction.dim] /= instruction.members;
  return Block(part, scatters ? kTileRows : 1);
}

// Microseconds. Where nothing is known of where ranks sit, they are a line.
class Model {
 public:
  Model(const Instruction& instruction, const std::optional<Boxes>& boxes)
      : boxes_(boxes),
        scatters_(instruction.op == Op::kReduceScatter),
        others_(static_cast<double>(instruction.members - 1)),
        hops_(boxes ? static_cast<double>(boxes->Hops()) : others_) {
    const Links* links = LinksOf(instruction.target.device);
    if (links == nullptr) links = LinksOf("tpu:v5e");
    const int64_t block = scatters_ ? instruction.ResultBytes() : instruction.operand.Bytes();
    const int64_t all = scatters_ ? instruction.operand.Bytes() : instruction.ResultBytes();
    block_us_ = static_cast<double>(block) / links->link_bytes_per_us;
    pass_us_ = 2 * static_cast<double>(all) / links->hbm_bytes_per_us;  // read, and written
    const Block padded = BlockOf(instruction);
    padded_ = static_cast<double>(padded.Padded()) / static_cast<double>(padded.elements);
    constexpr int64_t kFine = 96;
    if (boxes) best_ = boxes->Shares(kFine, /*in_parts=*/true, scatters_);
  }

  double OfOne() const { return kStartUs + hops_ * kHopUs + OnLinks(best_); }
  // All is reduced and all is gathered.
  double OfAllReduce() const { return kStartUs + 2 * (hops_ * kHopUs + OnLinks(best_)); }
  // Parts go at once. Each is cut out, in whole tiles, and put into its place in the result.
  double OfStages(const std::vector<int64_t>& shares) const {
    const auto parts = static_cast<double>(shares.size()) -
                       static_cast<double>(std::count(shares.begin(), shares.end(), int64_t{0}));
    const auto stages = static_cast<double>(boxes_->stages.size());
    return (stages + parts) * kStartUs + hops_ * kHopUs + padded_ * (OnLinks(shares) + pass_us_);
  }

 private:
  double OnLinks(const std::vector<int64_t>& shares) const {
    return block_us_ * (boxes_ ? boxes_->Load(shares, scatters_) : others_);
  }

  const std::optional<Boxes>& boxes_;
  const bool scatters_;
  const double others_;
  const double hops_;
  double block_us_;
  double pass_us_;
  double padded_;
  std::vector<int64_t> best_;
};

// Narrow rows go only as those of a matrix whose parts lie one behind the other: folded.
bool CanMove(const Instruction& instruction) {
  const std::vector<int64_t>& dims = instruction.operand.dims;
  const auto last = static_cast<int64_t>(dims.size()) - 1;
  if (last == 0) return true;
  const bool cut = instruction.op == Op::kReduceScatter && instruction.dim == last;
  if (!IsNarrow(dims[last] / (cut ? instruction.members : 1))) return true;
  if (last > 1 || instruction.dim != 0) return false;
  const bool scatters = instruction.op == Op::kReduceScatter;
  const int64_t rows = dims[0] / (scatters ? instruction.members : 1);
  const int64_t unit = kTileLanes * (scatters ? kTileRows / std::gcd(kTileRows, dims[1]) : 1);
  return FilledUp{rows, RoundUp(rows, unit)}.Pays(scatters ? instruction.members : 1);
}

}  // namespace

Route RouteOf(const Instruction& instruction, const Groups& groups) {
  Route route;
  if (instruction.members == 1 || !IsEverKept(instruction) || !CanMove(instruction)) return route;
  const bool in_groups = IsKeptInGroups(instruction);
  if (in_groups && IsKeptInShape(instruction)) return route;
  const Target& target = instruction.target;
  std::optional<Boxes> boxes = BoxesOf(groups, target.topology, target.world_size);
  const Model model(instruction, boxes);
  double least = model.OfAllReduce();
  if (in_groups) {
    if (model.OfOne() < least) route.way = Route::kInBlocks;
    return route;
  }
  if (!boxes) return route;
  for (const Cut& cut : BlockOf(instruction).Cuts()) {
    for (const bool in_parts : {true, false}) {
      if (in_parts && cut.units < 2) continue;
      const bool scatters = instruction.op == Op::kReduceScatter;
      const std::vector<int64_t> shares =
          boxes->Shares(std::max<int64_t>(cut.units, 1), in_parts, scatters);
      const double time = model.OfStages(shares);
      if (time >= least) continue;
      least = time;
      route.way = Route::kInStages;
      route.parts = {cut, shares};
    }
  }
  if (route.way == Route::kInStages) route.boxes = std::move(boxes);
  return route;
}

}  // namespace xla_cc
