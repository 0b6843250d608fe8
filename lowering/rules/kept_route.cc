#include "lowering/rules/kept_route.h"

#include <numeric>

#include "lowering/model/tiles.h"
#include "lowering/rules/filled_up.h"

namespace xla_cc {

using hlo::Shape;

namespace {

constexpr double kHopUs = 1;    // from chip to chip, as vendors and users of pods measure it
constexpr double kStartUs = 2;  // of an instruction of its own

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

// Both stages of one operand.
bool AreKeptInShape(Instruction instruction) {
  const bool scatters = instruction.op == Op::kReduceScatter;
  const int64_t all = instruction.members;
  instruction.of_world = false;
  for (const int64_t members : {scatters ? all / 2 : 2, scatters ? 2 : all / 2}) {
    instruction.members = members;
    if (!IsKeptInShape(instruction)) return false;
    int64_t& size = instruction.operand.dims[instruction.dim];
    size = scatters ? size / members : size * members;
  }
  return true;
}

}  // namespace

// Microseconds.
class Routes::Model {
 public:
  explicit Model(const Instruction& instruction) {
    const Links* links = LinksOf(instruction.target.device);
    const bool scatters = instruction.op == Op::kReduceScatter;
    const Shape& operand = instruction.operand;
    const int64_t block = scatters ? instruction.ResultBytes() : operand.Bytes();
    block_us_ = static_cast<double>(block) / links->link_bytes_per_us;
    if (!scatters) return;
    std::vector<int64_t> part = operand.dims;
    part[instruction.dim] /= instruction.members;
    const Block tiles(part);
    padded_ = static_cast<double>(tiles.Padded()) / static_cast<double>(tiles.elements);
    const bool moves = instruction.dim != 0 || tiles.turned || tiles.Padded() != tiles.elements;
    if (moves) pass_us_ = 2 * static_cast<double>(operand.Bytes()) / links->hbm_bytes_per_us;
  }

  double Of(const Way& way) const { return kStartUs + way.hops * kHopUs + way.blocks * block_us_; }
  // All is reduced and all is gathered.
  double OfAllReduce(const Way& way) const { return Of({2 * way.hops, 2 * way.blocks}); }
  // Moved into blocks of whole tiles, it is read and written once more. What is padded is handed on
  // between neighbours.
  double Reshaped(double time) const {
    return padded_ * (time + pass_us_) + (padded_ > 1 ? kStartUs + kHopUs : 0);
  }

 private:
  double block_us_;
  double padded_ = 1;
  double pass_us_ = 0;
};

// Where nothing is known of where ranks sit, they are a line.
Routes::Way Routes::WayOf(const Groups& groups, int64_t members) const {
  const auto boxes = BoxesOf(groups, target_.topology, target_.world_size);
  const auto others = static_cast<double>(members - 1);
  if (!boxes) return {others, others};
  return {static_cast<double>(boxes->Hops()), boxes->Load()};
}

void Routes::Look(int64_t members) {
  if (looked_) return;
  looked_ = true;
  all_ = WayOf(groups_, members);
  if (members != target_.world_size) return;
  stages_ = NeighboursOf(groups_, target_.topology, target_.world_size);
  if (!stages_) return;
  pairs_ = WayOf(stages_->pairs, 2);
  others_ = WayOf(stages_->others, members / 2);
  others_.blocks *= 2;  // of both of a pair
}

Route Routes::Of(const Instruction& instruction) {
  // What compilers of other generations keep was not measured.
  if (LinksOf(target_.device) == nullptr) return {};
  if (instruction.members == 1 || !IsEverKept(instruction)) return {};
  Route route;
  route.in_stages = !IsKeptInGroups(instruction);
  route.reshaped = route.in_stages ? !AreKeptInShape(instruction) : !IsKeptInShape(instruction);
  if (!route.in_stages && !route.reshaped) return {};
  if (route.reshaped && !CanMove(instruction)) return {};
  Look(instruction.members);
  if (route.in_stages && !stages_) return {};
  const Model model(instruction);
  double time = route.in_stages ? model.Of(pairs_) + model.Of(others_) : model.Of(all_);
  if (route.reshaped) time = model.Reshaped(time);
  return time < model.OfAllReduce(all_) ? route : Route();
}

}  // namespace xla_cc
