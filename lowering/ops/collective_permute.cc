#include "lowering/ops/collective_permute.h"

#include <algorithm>
#include <optional>

#include "lowering/ops/all_gather.h"
#include "lowering/ops/all_reduce.h"
#include "lowering/rules/bits.h"
#include "lowering/rules/by_rank.h"
#include "lowering/rules/lower_op.h"
#include "lowering/rules/shared_ways.h"

namespace xla_cc {

using hlo::Computation;
using hlo::ElementType;
using hlo::Shape;
using hlo::Value;
using hlo::Values;

Status CollectivePermute::Verify(const Call& call) {
  XLA_CC_RETURN_IF_ERROR(RequireOperands(kName, call));
  return ResolvePairs(kName, call.world_size(), &pairs);
}

Values CollectivePermute::LowerNative(Emitter& e, const Values& xs) const {
  return {e.CollectivePermute(xs[0], pairs)};
}

namespace {

// The pairs in rounds, of which each names a rank with one partner at most. A rank has at most two
// partners, so the pairs form paths and circles: two rounds do, and three for a circle of odd
// length. Pairs of a rank with itself are left out.
std::vector<Pairs> Matchings(const Pairs& pairs, int64_t world_size) {
  std::vector<int64_t> target_of(world_size, -1);
  std::vector<int64_t> source_of(world_size, -1);
  for (const auto& [source, target] : pairs) {
    if (source == target) continue;
    target_of[source] = target;
    source_of[target] = source;
  }
  std::vector<Pairs> rounds(3);
  std::vector<bool> done(world_size, false);  // whose sending is in a round
  const auto follow = [&](int64_t start) {
    int64_t step = 0;
    for (int64_t rank = start; target_of[rank] >= 0 && !done[rank]; ++step) {
      done[rank] = true;
      const int64_t target = target_of[rank];
      // An exchange is one round. The last pair of an odd circle meets the first at `start`.
      const bool back = target_of[target] == rank;
      const bool odd_end = target == start && step > 1 && step % 2 == 0;
      rounds[back ? 0 : odd_end ? 2 : step % 2].push_back({rank, target});
      rank = target;
    }
  };
  for (int64_t rank = 0; rank < world_size; ++rank) {
    if (source_of[rank] < 0) follow(rank);  // paths first, from their beginnings
  }
  for (int64_t rank = 0; rank < world_size; ++rank) follow(rank);
  return rounds;
}

// By rank: the partner in a round, or the rank itself.
std::vector<int64_t> Partners(const Pairs& round, int64_t world_size) {
  std::vector<int64_t> partners(world_size);
  for (int64_t rank = 0; rank < world_size; ++rank) partners[rank] = rank;
  for (const auto& [source, target] : round) {
    partners[source] = target;
    partners[target] = source;
  }
  return partners;
}

// Groups of two: partners, and those who have none with each other.
std::optional<Groups> InPairs(const std::vector<int64_t>& partners) {
  std::vector<std::vector<int64_t>> groups;
  int64_t open = -1;
  for (int64_t rank = 0; rank < static_cast<int64_t>(partners.size()); ++rank) {
    if (partners[rank] > rank) groups.push_back({rank, partners[rank]});
    if (partners[rank] != rank) continue;
    if (open >= 0) groups.push_back({open, rank});
    open = open >= 0 ? -1 : rank;
  }
  if (open >= 0) return std::nullopt;
  return Groups(groups);
}

// What this rank's partner has: all_gather in pairs ; the other block.
Value OfPartner(Emitter& e, const Value& x, const Groups& in_pairs) {
  Computation& c = e.c();
  const Value both = LowerOne(AllGather{0, in_pairs}, e, AsBlock(c, x));
  std::vector<int64_t> other = in_pairs.Positions(e.world_size());
  for (int64_t& position : other) position = 1 - position;
  return c.Reshape(BlockByRank(c, both, 0, 1, other), x.shape.dims);
}

// The same in a world of odd size: all_reduce of the bits in pairs, and the own ones taken away.
Value OfPartnerBySum(Emitter& e, const Value& x, const std::vector<int64_t>& partners) {
  std::vector<std::vector<int64_t>> groups;
  for (int64_t rank = 0; rank < e.world_size(); ++rank) {
    if (partners[rank] > rank) groups.push_back({rank, partners[rank]});
    if (partners[rank] == rank) groups.push_back({rank});
  }
  return MapBits(e.c(), x, [&](const Value& bits) {
    const Value sum = LowerOne(AllReduce{{}, Groups(groups)}, e, bits);
    return e.c().Binary("subtract", sum, bits);
  });
}

// collective_permute = up to three rounds of exchanges between pairs ; the value that is meant.
Value ByPairs(const CollectivePermute& op, Emitter& e, const Value& x) {
  const Pairs& pairs = op.pairs;
  Computation& c = e.c();
  const int64_t world_size = e.world_size();
  std::vector<int64_t> keeps(world_size, 0);
  for (const auto& [source, target] : pairs) keeps[target] = source == target;
  Value result = KeepByRank(c, x, keeps);
  // Where every rank receives, what is there before does not matter.
  bool anything = static_cast<int64_t>(pairs.size()) == world_size;
  for (const int64_t keep : keeps) anything = anything && keep == 0;
  for (const Pairs& round : Matchings(pairs, world_size)) {
    if (round.empty()) continue;
    const std::vector<int64_t> partners = Partners(round, world_size);
    const auto in_pairs = InPairs(partners);
    const Value theirs = in_pairs && Takes(AllGather{0, *in_pairs}, e, x.shape.type)
                             ? OfPartner(e, x, *in_pairs)
                             : OfPartnerBySum(e, x, partners);
    std::vector<int64_t> receives(world_size, 0);
    for (const auto& [source, target] : round) receives[target] = 1;
    result = anything ? theirs : ChooseByRank(c, receives, theirs, result);
    anything = false;
  }
  return result;
}

bool PairsAreTaken(const CollectivePermute&, const Emitter& e, const Value& x) {
  if (e.world_size() == 1) return true;  // a pair of the rank with itself, or none
  const auto in_pairs = InPairs(Partners({}, e.world_size()));
  if (in_pairs && Takes(AllGather{0, *in_pairs}, e, x.shape.type)) return true;
  // The form that OfPartnerBySum needs.
  const Groups unequal =
      Groups(std::vector<std::vector<int64_t>>{{0, 1}}).WithSingles(e.world_size());
  return Takes(AllReduce{{}, unequal}, e, ElementType::kU32);
}

// collective_permute = all_gather ; slice of the source's block, or zeros.
Value ByGather(const CollectivePermute& op, Emitter& e, const Value& x) {
  Computation& c = e.c();
  std::vector<int64_t> sources(e.world_size(), 0);
  std::vector<int64_t> receives(e.world_size(), 0);
  for (const auto& [source, target] : op.pairs) {
    sources[target] = source;
    receives[target] = 1;
  }
  const Value gathered = LowerOne(AllGather{}, e, AsBlock(c, x));
  const Value received = c.Reshape(BlockByRank(c, gathered, 0, 1, sources), x.shape.dims);
  return KeepByRank(c, received, receives);
}

}  // namespace

bool MeetsInRounds(const Groups& groups, const Emitter& e, ElementType type) {
  const int64_t members = groups.Size(e.world_size());
  // Ranks on threads meet those of their group only: there a round must have no idle member.
  const bool paired = e.target().RanksAreThreads() && groups.Uniform() &&
                      groups.Covers(e.world_size()) && members % 2 == 0;
  return members <= kMostSteps && (paired || Takes(CollectivePermute{{{0, 0}}}, e, type));
}

const Ways<CollectivePermute>& CollectivePermute::Fallback() {
  static const Ways<CollectivePermute> ways = {
      {
          // collective_permute of a type = that of its bits.
          OfItsBits<CollectivePermute>(),
          {"in pairs", &PairsAreTaken, &ByPairs},
          {"by all_gather", &Always<CollectivePermute>, &ByGather},
      },
      {},
  };
  return ways;
}

}  // namespace xla_cc
