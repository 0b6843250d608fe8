// What another rank wrote may be anything, of another version or cut: it is read or refused, and
// what was read is compared without a step out of bounds. (Built with sanitizers: .bazelrc.)
#include <gtest/gtest.h>

#include "tests/dice/dice.h"
#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/groupcall/transfers.h"

namespace xla_cc {
namespace {

RankGroup GroupOf(int64_t size) {
  RankGroup group{"g", {}, {}, size, 0};
  for (int64_t rank = 0; rank < size; ++rank) group.members.push_back(rank);
  group.devices = group.members;
  return group;
}

const std::vector<int64_t> kNumbers = {0, 0, 1, 1, 2, 3, -1, 5, 1 << 30, INT64_MIN, INT64_MAX};

std::vector<int64_t> Numbers(Dice& dice, int64_t most) {
  std::vector<int64_t> numbers(static_cast<size_t>(dice.Below(most + 1)));
  for (int64_t& number : numbers) number = dice.Of(kNumbers);
  return numbers;
}

Said RandomSaid(Dice& dice) {
  Said said;
  said.what = dice.Text("ab (", 2);
  said.site = dice.Text("a:1\n", 2);
  if (dice.OneIn(2)) said.sent = Numbers(dice, 4);
  if (dice.OneIn(2)) said.received = Numbers(dice, 4);
  said.ends.resize(static_cast<size_t>(dice.Below(4)));
  for (TransferEnd& end : said.ends) {
    end = {dice.OneIn(2), dice.Of(kNumbers), dice.Below(2),
           dice.Below(2), Numbers(dice, 2),  dice.Text("send,1\n", 4)};
  }
  return said;
}

// Either is one of ours, or it says so.
void ReadOrRefuse(const std::string& text) {
  try {
    const Said said = Decode(text);
    EXPECT_EQ(Encode(Decode(Encode(said))), Encode(said));
  } catch (const RanksDisagree& error) {
    EXPECT_NE(std::string(error.what()).find("cannot be read"), std::string::npos);
  }
}

TEST(RandomSaid, IsReadOrRefused) {
  int read = 0;
  for (const uint64_t seed : Dice::Seeds(3000)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    std::string text = Encode(RandomSaid(dice));
    EXPECT_EQ(Encode(Decode(text)), text);
    for (int times = 0; times < 4 && !text.empty(); ++times) {
      const auto at = static_cast<size_t>(dice.Below(static_cast<int64_t>(text.size())));
      if (dice.OneIn(3)) text.resize(at);
      if (at < text.size()) text[at] = static_cast<char>(dice.Below(256));
      ReadOrRefuse(text);
    }
    ReadOrRefuse(dice.Text("0123456789,-\n x", 40));
    ++read;
  }
  EXPECT_GT(read, 0);
}

TEST(RandomSaid, IsCompared) {
  int fit = 0;
  int wrong = 0;
  for (const uint64_t seed : Dice::Seeds(3000)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const RankGroup group = GroupOf(1 + dice.Below(4));
    std::vector<Said> calls(group.members.size());
    const bool same = dice.OneIn(2);
    for (Said& said : calls) {
      said = RandomSaid(dice);
      if (same) said.what = "x";
      if (same && dice.OneIn(2)) said.ends.clear();
    }
    const std::string why = Mismatch(group, calls, dice.OneIn(2));
    ++(why.empty() ? fit : wrong);
    std::string left;
    const Transfers transfers = Matched(group, calls, &left);
    size_t in_rounds = 0;
    for (const Transfers& round : TransferRounds(calls, transfers)) in_rounds += round.size();
    EXPECT_EQ(in_rounds, transfers.size());
  }
  EXPECT_GT(fit, 10);
  EXPECT_GT(wrong, 100);
}

// Batches that fit by construction, as those of one list of messages.
TEST(RandomTransfers, OfWhichEachIsMatched) {
  for (const uint64_t seed : Dice::Seeds(500)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const RankGroup group = GroupOf(1 + dice.Below(5));
    std::vector<Said> calls(group.members.size());
    const int64_t messages = dice.Below(12);
    for (int64_t i = 0; i < messages; ++i) {
      const int64_t from = dice.Below(group.size());
      const int64_t to = dice.Below(group.size());
      const int64_t tag = dice.Below(3);
      const std::vector<int64_t> dims{dice.Below(3)};
      calls[static_cast<size_t>(from)].ends.push_back({true, to, tag, 6, dims, "send"});
      calls[static_cast<size_t>(to)].ends.push_back({false, from, tag, 6, dims, "recv"});
    }
    EXPECT_EQ(Mismatch(group, calls, false), "");
    std::string wrong;
    EXPECT_EQ(Matched(group, calls, &wrong).size(), static_cast<size_t>(messages));
    if (messages == 0) continue;
    // One that is lost, and who misses it is told.
    Said& loses = *std::find_if(calls.begin(), calls.end(),
                                [](const Said& said) { return !said.ends.empty(); });
    loses.ends.pop_back();
    EXPECT_NE(Mismatch(group, calls, false), "");
  }
}

}  // namespace
}  // namespace xla_cc
