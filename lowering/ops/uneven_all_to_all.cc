#include "lowering/ops/uneven_all_to_all.h"

#include <algorithm>

#include "lowering/model/tournament.h"
#include "lowering/ops/all_to_all.h"
#include "lowering/ops/collective_permute.h"
#include "lowering/ops/uneven_all_gather.h"
#include "lowering/rules/by_rank.h"
#include "lowering/rules/lower_op.h"
#include "lowering/rules/uneven_rows.h"

namespace xla_cc {

using hlo::Computation;
using hlo::Shape;
using hlo::Value;
using hlo::Values;

Status UnevenAllToAll::Verify(const Call& call) {
  XLA_CC_RETURN_IF_ERROR(RequireOperands(kName, call));
  XLA_CC_RETURN_IF_ERROR(ResolveSizes(kName, call.world_size(), sizes, &groups));
  XLA_CC_RETURN_IF_ERROR(
      RequireRows(kName, call, Largest(Sums(sizes)), "the largest sum of what a rank sends"));
  return RequireCountable(kName, call, groups.Size(call.world_size()));
}

std::vector<Shape> UnevenAllToAll::Results(const Call& call) const {
  std::vector<Shape> results = call.operands;
  const Sizes received = Sums(ReceivedInGroups(sizes, groups, call.world_size()));
  for (Shape& shape : results) shape.dims[0] = Largest(received);
  return results;
}

namespace {

// By rank and position of its group.
struct Sent {
  RankRows sent;
  RankRows received;
  int64_t rows;  // of a result
};

Sent Counted(const UnevenAllToAll& op, Emitter& e) {
  const RankRows received = ReceivedInGroups(op.sizes, op.groups, e.world_size());
  return {SentInGroups(op.sizes, op.groups, e.world_size()), received, Largest(Sums(received))};
}

// uneven_all_to_all = all_to_all of blocks as long as the largest ; what counts of each.
Value ByPadding(const UnevenAllToAll& op, Emitter& e, const Value& x) {
  const Sent rows = Counted(op, e);
  const int64_t largest = Largest(op.sizes);
  const Value blocks = TakeEvenBlocks(e.c(), x, Starts(rows.sent), largest);
  const Value exchanged = LowerOne(AllToAll{0, 0, {}, op.groups}, e, blocks);
  const RankRows starts = EvenStarts(e.world_size(), op.groups.Size(e.world_size()), largest);
  return PackRows(e.c(), exchanged, starts, rows.received, rows.rows);
}

// uneven_all_to_all = uneven_all_gather ; what each member means for this rank.
Value ByGather(const UnevenAllToAll& op, Emitter& e, const Value& x) {
  const int64_t world_size = e.world_size();
  const Sent rows = Counted(op, e);
  const Sizes sums = Sums(op.sizes);
  const Value gathered = LowerOne(UnevenAllGather{sums, op.groups}, e, x);
  const RankRows of_members = Starts(InGroups(sums, op.groups, world_size));
  const RankRows inside = Starts(rows.sent);
  RankRows starts(world_size, Row(of_members.length(), 0));
  const std::vector<int64_t> positions = op.groups.Positions(world_size);
  for (const auto& group : op.groups.Expanded(world_size)) {
    for (int64_t rank : group) {
      Row row = of_members[rank];
      for (size_t i = 0; i < group.size(); ++i) row[i] += inside[group[i]][positions[rank]];
      starts.Give(rank, std::move(row));
    }
  }
  return PackRows(e.c(), gathered, starts, rows.received, rows.rows);
}

// uneven_all_to_all = a round of exchanges with each other member, of as many rows as the most that
// are sent in that round ; in group order.
Value ByRounds(const UnevenAllToAll& op, Emitter& e, const Value& x) {
  Computation& c = e.c();
  const int64_t world_size = e.world_size();
  const Sent rows = Counted(op, e);
  const RankRows starts_of_sent = Starts(rows.sent);
  const std::vector<int64_t> positions = op.groups.Positions(world_size);
  // What came, round by round, and where that of each member lies in it. The own rows come first.
  Values parts;
  std::vector<Row> starts(world_size, Row(op.groups.Size(world_size), 0));
  int64_t end = 0;
  const auto take = [&](const std::vector<int64_t>& partners, const Pairs* pairs) {
    int64_t most = 0;
    RankRows start(world_size, {0});
    for (int64_t rank = 0; rank < world_size; ++rank) {
      const int64_t partner = partners[rank];
      start.Give(rank, {starts_of_sent[rank][partner]});
      if (pairs == nullptr || partner != positions[rank]) {
        most = std::max(most, rows.sent[rank][partner]);
        starts[rank][partner] = end;
      }
    }
    if (most == 0) return;
    const Value sent = TakeEvenBlocks(c, x, start, most);
    parts.push_back(pairs == nullptr ? sent : LowerOne(CollectivePermute{*pairs}, e, sent));
    end += most;
  };
  take(positions, nullptr);
  for (const PairingRound& round : PairingRounds(op.groups, world_size))
    take(round.partners, &round.pairs);
  RankRows by_rank(world_size, starts[0]);
  for (int64_t rank = 0; rank < world_size; ++rank) by_rank.Give(rank, std::move(starts[rank]));
  return PackRows(c, JoinRows(c, parts), by_rank, rows.received, rows.rows);
}

// The exchange as one instruction of groups that may be larger than the op's: there rows are sent
// between members of the op's groups only.
Value Ragged(const UnevenAllToAll& op, Emitter& e, const Value& x, const Groups& over) {
  Computation& c = e.c();
  const int64_t world_size = e.world_size();
  const Sent rows = Counted(op, e);
  const RankRows sent_from = Starts(rows.sent);
  const RankRows received_at = Starts(rows.received);
  const std::vector<int64_t> positions = op.groups.Positions(world_size);
  const std::vector<int64_t> places = over.Positions(world_size);
  const Row nothing(over.Size(world_size), 0);
  RankRows from(world_size, nothing);
  RankRows sent = from;
  RankRows to = from;
  RankRows received = from;
  const Sizes all_received = Sums(rows.received);
  int64_t from_others = 0;
  for (const auto& group : op.groups.Expanded(world_size)) {
    for (int64_t rank : group) {
      const auto in_place = [&](const auto& number) {
        Row row = nothing;
        for (size_t i = 0; i < group.size(); ++i) row[places[group[i]]] = number(i);
        return row;
      };
      from.Give(rank, in_place([&](size_t i) { return sent_from[rank][i]; }));
      sent.Give(rank, in_place([&](size_t i) { return rows.sent[rank][i]; }));
      to.Give(rank, in_place([&](size_t i) { return received_at[group[i]][positions[rank]]; }));
      received.Give(rank, in_place([&](size_t i) { return rows.received[rank][i]; }));
      const int64_t own = rows.received[rank][positions[rank]];
      from_others = std::max(from_others, all_received[rank] - own);
    }
  }
  const Value zeros = c.Zeros(WithRows(x.shape, rows.rows));
  const Values tables = {RowByRank(c, from), RowByRank(c, sent), RowByRank(c, to),
                         RowByRank(c, received)};
  return e.RaggedAllToAll(x, zeros, tables, over, from_others);
}

// Whether every member of every group sends as much to each.
bool IsEven(const UnevenAllToAll& op, int64_t world_size) {
  const int64_t largest = Largest(op.sizes);
  for (const auto& group : op.groups.Expanded(world_size)) {
    for (int64_t from : group) {
      for (int64_t to : group) {
        if (op.sizes[from][to] != largest) return false;
      }
    }
  }
  return op.groups.Uniform();
}

// uneven_all_to_all in groups of any form = that of the world, where nothing is sent between
// groups.
Value OverTheWorld(const UnevenAllToAll& op, Emitter& e, const Value& x) {
  return Ragged(op, e, x, Groups());
}

}  // namespace

Values UnevenAllToAll::LowerNative(Emitter& e, const Values& xs) const {
  // Of equal sizes it is no other than the even op, which compilers make less of a program of.
  const AllToAll even{0, 0, {}, groups};
  if (IsEven(*this, e.world_size()) && Takes(even, e, xs[0].shape.type)) return Lower(even, e, xs);
  return {Ragged(*this, e, xs[0], groups)};
}

const Ways<UnevenAllToAll>& UnevenAllToAll::Fallback() {
  static const Ways<UnevenAllToAll> ways = {
      {},
      {
          {"of the world",
           [](const UnevenAllToAll& op, const Emitter& e, const Value& x) {
             return !op.groups.IsWorld() && Takes(UnevenAllToAll{{}, {}}, e, x.shape.type);
           },
           &OverTheWorld},
          {"by all_to_all", &Always<UnevenAllToAll>, &ByPadding},
          {"by uneven_all_gather",
           [](const UnevenAllToAll& op, const Emitter& e, const Value& x) {
             return x.shape.dims[0] <= INT32_MAX / op.groups.Size(e.world_size());
           },
           &ByGather},
          {"in rounds",
           [](const UnevenAllToAll& op, const Emitter& e, const Value& x) {
             return MeetsInRounds(op.groups, e, x.shape.type);
           },
           &ByRounds},
      },
  };
  return ways;
}

}  // namespace xla_cc
