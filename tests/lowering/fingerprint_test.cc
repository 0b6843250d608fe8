// Same key, same bytes; another key, other bytes: compile caches and ranks that meet rely on it.
#include <set>
#include <utility>

#include "tests/lowering/testing.h"
#include "tests/lowering/wire_reader.h"

namespace xla_cc {
namespace {

using hlo::ElementType;
using hlo::Shape;

// Changes the field of a given number to another valid value.
class Mutation {
 public:
  explicit Mutation(int wanted) : wanted_(wanted) {}
  void operator()(const char* name, int64_t& value) {
    if (Here(name)) ++value;
  }
  void operator()(const char* name, std::optional<int64_t>& value) {
    if (Here(name)) value = 8, checked_only_ = true;
  }
  void operator()(const char* name, double& value) {
    if (Here(name)) value += 1;
  }
  void operator()(const char* name, ReduceKind& value) {
    if (Here(name)) value = ReduceKind::kMax;
  }
  void operator()(const char* name, Groups& value) {
    // The size of the group stays, and with it all shapes; the root stays first.
    if (Here(name)) value = Groups(Lists{{0, 1, 2, 3, 4, 5, 7, 6}}), is_groups_ = true;
  }
  void operator()(const char* name, Pairs& value) {
    if (Here(name)) value[0].second = 5;
  }
  void operator()(const char* name, Sizes& value) {
    if (Here(name)) std::swap(value[0], value[1]);
  }
  void operator()(const char* name, SizeMatrix& value) {
    if (Here(name)) std::swap(value[0][0], value[0][1]);
  }

  int count() const { return count_; }
  const std::string& field() const { return field_; }
  bool is_groups() const { return is_groups_; }
  // A field that is compared with the groups, and says nothing of its own.
  bool checked_only() const { return checked_only_; }

 private:
  bool Here(const char* name) {
    if (count_++ != wanted_) return false;
    field_ = name;
    return true;
  }
  int wanted_;
  int count_ = 0;
  std::string field_;
  bool is_groups_ = false;
  bool checked_only_ = false;
};

// Calls whose fields may each be changed alone and stay valid.
const Collective kCalls[] = {
    AllGather{},
    AllReduce{{ReduceKind::kPremultipliedSum}, {}},
    ReduceScatter{{ReduceKind::kPremultipliedSum}, 0, {}, {}},
    CollectivePermute{{{0, 1}, {2, 3}}},
    AllToAll{},
    CollectiveBroadcast{},
    Send{1, {{0, 1}, {2, 3}}},
    Recv{1, {{0, 1}, {2, 3}}},
    UnevenAllGather{{8, 0, 1, 2, 3, 4, 5, 6}, {}},
    UnevenReduceScatter{{ReduceKind::kPremultipliedSum}, {2, 0, 1, 1, 1, 1, 1, 1}, {}},
    UnevenAllToAll{SizeMatrix(8, {2, 0, 1, 1, 1, 1, 1, 1}), {}},
};

class Fields : public testing::TestWithParam<Collective> {};

TEST_P(Fields, EachChangesTheInstructionsAndTheName) {
  // Native on GPU, where the text has all fields; it has no metadata, so a name alone does not
  // change it.
  const Target target = Gpu8();
  const std::vector<Shape> operands = {F32({8, 8})};
  const Lowered base = MustLower(GetParam(), operands, target, {}, Rule::kNative);
  // Ranks agree on their own group alone, but on all groups where each has sizes of its own.
  const bool own_group = base.name.find("sizes=") == std::string::npos;
  int fields = 1;
  for (int field = 0; field < fields; ++field) {
    Collective collective = GetParam();
    Mutation mutation(field);
    Visit(collective, [&](auto& node) { std::decay_t<decltype(node)>::Fields(node, mutation); });
    fields = mutation.count();
    SCOPED_TRACE(mutation.field());
    const Lowered changed = MustLower(collective, operands, target, {}, Rule::kNative);
    const bool same = mutation.checked_only();
    // A sum has no order: its groups are sorted, and here two ranks have changed places in one.
    const bool sorted = mutation.is_groups() && std::holds_alternative<AllReduce>(collective);
    EXPECT_EQ(changed.text == base.text, same || sorted) << changed.text;
    EXPECT_EQ(changed.bytes == base.bytes, same);
    EXPECT_EQ(changed.fingerprint == base.fingerprint, same);
    EXPECT_EQ(changed.name == base.name, same);
    EXPECT_EQ(changed.identity == base.identity, same || (mutation.is_groups() && own_group));
  }
  EXPECT_GE(fields, 1);
}

INSTANTIATE_TEST_SUITE_P(Ops, Fields, testing::ValuesIn(kCalls),
                         [](const auto& info) { return Name(OpFor(info.param)); });

TEST(Fields, AllOpsAreHere) {
  std::set<Op> ops;
  for (const Collective& collective : kCalls) ops.insert(OpFor(collective));
  EXPECT_EQ(ops.size(), kAllOps.size());
}

// Attributes that say the same.
TEST(Fingerprint, EqualCallsAreOne) {
  const Groups world(Lists{{0, 1, 2, 3, 4, 5, 6, 7}});
  const Groups halves(Lists{{0, 1, 2, 3}, {4, 5, 6, 7}});
  const std::vector<std::vector<Collective>> equal = {
      {AllGather{1, {}}, AllGather{-1, {}}, AllGather{1, world}},
      {AllReduce{}, AllReduce{{}, world}},
      {ReduceScatter{{}, 0, {}, halves}, ReduceScatter{{}, -2, 4, halves}},
      {AllToAll{0, 1, {}, {}}, AllToAll{-2, -1, 8, world}},
      {CollectivePermute{{{0, 1}, {2, 3}}}, CollectivePermute{{{2, 3}, {0, 1}}}},
      {CollectiveBroadcast{1, halves}, CollectiveBroadcast{5, halves}},
      {Send{3, {{0, 1}, {2, 3}}}, Send{3, {{2, 3}, {0, 1}}}},
      {Recv{3, {{0, 1}, {2, 3}}}, Recv{3, {{2, 3}, {0, 1}}}},
  };
  for (const char* name : {"cpu:8", "tpu:v5e:2x4", "gpu:h100x8"}) {
    for (const std::vector<Collective>& calls : equal) {
      const Lowered first = MustLower(calls[0], {F32({8, 8})}, TargetOf(name));
      for (const Collective& call : calls) {
        const Lowered lowered = MustLower(call, {F32({8, 8})}, TargetOf(name));
        EXPECT_EQ(lowered.bytes, first.bytes) << ToString(call);
        EXPECT_EQ(lowered.fingerprint, first.fingerprint) << ToString(call);
        EXPECT_EQ(lowered.name, first.name);
        EXPECT_EQ(lowered.identity, first.identity);
        EXPECT_EQ(ToString(lowered.collective), first.name);
      }
    }
  }
}

// What is not an attribute: operands, device, world, call site.
TEST(Fingerprint, FollowsEverythingElseThatMatters) {
  const AllGather node;
  std::set<std::string> prints;
  const auto add = [&](const Lowered& lowered) {
    EXPECT_EQ(lowered.fingerprint.size(), 16u);
    EXPECT_EQ(lowered.fingerprint.find_first_not_of("0123456789abcdef"), std::string::npos);
    EXPECT_TRUE(prints.insert(lowered.fingerprint).second) << lowered.text;
  };
  add(MustLower(node, {F32({8})}, Tpu8()));
  add(MustLower(node, {F32({8, 1})}, Tpu8()));
  add(MustLower(node, {F32({8}), F32({8})}, Tpu8()));
  add(MustLower(node, {S32({8})}, Tpu8()));
  add(MustLower(node, {F32({8})}, TargetOf("tpu", 16)));
  add(MustLower(node, {F32({8})}, TargetOf("cpu", 8)));
  add(MustLower(node, {F32({8})}, Tpu8(), {"train.py", 3}));
  add(MustLower(node, {F32({8})}, Tpu8(), {"train.py", 4}));
  add(MustLower(node, {F32({8})}, Tpu8(), {"other.py", 4}));
  // Groups whose names are cut at the same place.
  Lists turned;
  for (int64_t rank = 0; rank < 64; rank += 2) turned.push_back({rank + 1, rank});
  const Lowered one = MustLower(AllGather{0, Groups(turned)}, {F32({8})}, TargetOf("tpu", 64));
  std::swap(turned[31][0], turned[31][1]);
  const Lowered other = MustLower(AllGather{0, Groups(turned)}, {F32({8})}, TargetOf("tpu", 64));
  EXPECT_EQ(one.name, other.name);
  add(one);
  add(other);
  // A program for another generation of the same kind is the same program.
  EXPECT_EQ(prints.count(MustLower(node, {F32({8})}, TargetOf("tpu:v4:2x2x2")).fingerprint), 1u);
}

// The channel by which ranks on CPU threads meet.
int64_t ChannelOf(const Collective& collective, const std::vector<Shape>& operands) {
  const Lowered lowered = MustLower(collective, operands, Cpu4());
  std::set<int64_t> channels;
  for (const ReadInstruction& instruction : ReadModule(lowered.bytes).Instructions()) {
    if (instruction.channel != 0) channels.insert(instruction.channel);
  }
  EXPECT_EQ(channels.size(), 1u) << lowered.text;
  return channels.empty() ? 0 : *channels.begin();
}

struct View {
  const char* name;
  Collective one, other;
};

void PrintTo(const View& view, std::ostream* out) { *out << view.name; }

class Views : public testing::TestWithParam<View> {};

// Ranks 0 and 3 meet, whatever each of them believes of 1 and 2.
TEST_P(Views, MeetByTheSameChannel) {
  const std::vector<Shape> operands = {F32({8, 8})};
  EXPECT_EQ(MustLower(GetParam().one, operands, Cpu4()).identity,
            MustLower(GetParam().other, operands, Cpu4()).identity);
  EXPECT_EQ(ChannelOf(GetParam().one, operands), ChannelOf(GetParam().other, operands));
}

const Groups kOne(Lists{{0, 3}, {1, 2}});
const Groups kOther(Lists{{0, 3}, {2, 1}});
const Groups kUneven(Lists{{0, 3}, {1}, {2}});
const Groups kLast(Lists{{1, 2}, {0, 3}});

INSTANTIATE_TEST_SUITE_P(
    Ops, Views,
    testing::Values(
        View{"Gather", AllGather{0, kOne}, AllGather{0, kOther}},
        View{"GatherLast", AllGather{0, kOne}, AllGather{0, kLast}},
        View{"Reduce", AllReduce{{}, kOne}, AllReduce{{}, kUneven}},
        View{"Scatter", ReduceScatter{{}, 0, {}, kOne}, ReduceScatter{{}, 0, {}, kLast}},
        View{"Exchange", AllToAll{0, 0, {}, kOne}, AllToAll{0, 0, {}, kOther}},
        View{"Broadcast", CollectiveBroadcast{0, kOne}, CollectiveBroadcast{0, kUneven}},
        View{"BroadcastLast", CollectiveBroadcast{0, kOne}, CollectiveBroadcast{0, kLast}}),
    [](const auto& info) { return info.param.name; });

TEST(Channels, DifferWhereCallsDiffer) {
  std::set<int64_t> channels;
  const auto add = [&](const Collective& collective, const std::vector<Shape>& operands) {
    EXPECT_TRUE(channels.insert(ChannelOf(collective, operands)).second) << ToString(collective);
  };
  add(AllGather{}, {F32({8})});
  add(AllGather{}, {F32({9})});
  add(AllGather{}, {S32({8})});
  add(AllReduce{}, {F32({8})});
  add(AllReduce{{ReduceKind::kMax}, {}}, {F32({8})});
  add(ReduceScatter{}, {F32({8})});
  add(CollectivePermute{{{0, 1}}}, {F32({8})});
  add(CollectivePermute{{{0, 2}}}, {F32({8})});
  add(CollectiveBroadcast{}, {F32({8})});
  add(Recv{1, {{0, 1}}}, {F32({8})});
  add(Recv{2, {{0, 1}}}, {F32({8})});
}

}  // namespace
}  // namespace xla_cc
