#include "torch_xla_cc/groupcall/said.h"

#include <gtest/gtest.h>

#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/groupcall/transfers.h"

namespace xla_cc {
namespace {

const RankGroup kGroup{"g", {4, 6}, {4, 6}, 8, 0};

Said SaidAs(const std::string& what, const std::string& site = "a.py:1") {
  Said said;
  said.what = what;
  said.site = site;
  return said;
}

TransferEnd End(bool sends, int64_t peer, int64_t tag, std::vector<int64_t> dims) {
  return {sends,
          peer,
          tag,
          6,
          std::move(dims),
          std::string(sends ? "send" : "recv") + " " + std::to_string(tag)};
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void ExpectSame(const Said& a, const Said& b) {
  EXPECT_EQ(a.what, b.what);
  EXPECT_EQ(a.sent, b.sent);
  EXPECT_EQ(a.received, b.received);
  EXPECT_EQ(a.site, b.site);
  ASSERT_EQ(a.ends.size(), b.ends.size());
  for (size_t i = 0; i < a.ends.size(); ++i) {
    EXPECT_EQ(a.ends[i].sends, b.ends[i].sends);
    EXPECT_EQ(a.ends[i].peer, b.ends[i].peer);
    EXPECT_EQ(a.ends[i].tag, b.ends[i].tag);
    EXPECT_EQ(a.ends[i].dtype, b.ends[i].dtype);
    EXPECT_EQ(a.ends[i].dims, b.ends[i].dims);
    EXPECT_EQ(a.ends[i].text, b.ends[i].text);
  }
}

TEST(Said, ComesAsItWasSent) {
  ExpectSame(Decode(Encode(Said())), Said());
  Said said = SaidAs("all_to_all(f32[2])", "a file with spaces, commas.py:12");
  ExpectSame(Decode(Encode(said)), said);
  said.sent = {0, -1, 1'000'000'000'000};
  said.received = {3};
  said.ends = {End(true, 1, 0, {2, 3}), End(false, 0, 7, {}), End(true, 1, 2, {0})};
  ExpectSame(Decode(Encode(said)), said);
}

TEST(Said, WhatIsNoneOfOursIsRefused) {
  for (const char* text : {"x\n1,a", "x\n1;2", "x\n99999999999999999999", "x\n\n1 ",
                           "x\n\n\ns\n1,2,3", "x\n\n\ns\n\n"}) {
    try {
      Decode(text);
      ADD_FAILURE() << text;
    } catch (const RanksDisagree& error) {
      EXPECT_TRUE(Has(error.what(), "says of its call cannot be read")) << error.what();
    }
  }
}

TEST(Said, WhatHasBeenCutIsRefused) {
  const std::string all = EncodeAll({SaidAs("barrier()"), SaidAs("send()")});
  const size_t first = EncodeAll({SaidAs("barrier()")}).size();
  for (size_t length = 1; length < all.size(); ++length) {
    if (length == first) continue;
    EXPECT_THROW(DecodeAll(all.substr(0, length)), RanksDisagree) << length;
  }
  for (const char* text : {"-1\n", "1,1\nx", "\n", "99999999999999999999\nx"}) {
    EXPECT_THROW(DecodeAll(text), RanksDisagree) << text;
  }
}

TEST(Said, AFileWithTwoLinesInItsName) {
  Said said = SaidAs("barrier()", "a\n7.py:1");
  said.ends = {End(true, 1, 0, {2})};
  ExpectSame(Decode(Encode(said)), [&] {
    said.site = "a 7.py:1";
    return said;
  }());
}

TEST(Mismatch, PartsForMoreOrFewerThanTheGroupHas) {
  Said whole = SaidAs("all_to_all");
  whole.sent = whole.received = {1, 1};
  for (const std::vector<int64_t>& parts : {std::vector<int64_t>{1}, {}, {1, 1, 1}}) {
    Said other = whole;
    other.sent = parts;
    EXPECT_TRUE(Has(Mismatch(kGroup, {whole, other}, false), "rank 6 sends"));
    EXPECT_TRUE(Has(Mismatch(kGroup, {other, whole}, false), "Send one to each of the 2 ranks"));
    other = whole;
    other.received = parts;
    EXPECT_TRUE(Has(Mismatch(kGroup, {whole, other}, false), "rank 6 sends 2 parts and expects"));
  }
}

TEST(Said, OfAllComesAsItWasSent) {
  EXPECT_TRUE(DecodeAll(EncodeAll({})).empty());
  Said said = SaidAs("all_to_all(f32[2])");
  said.sent = {12, 0};
  said.received = {7, 7};
  said.ends = {End(true, 1, 0, {2, 3})};
  const std::vector<Said> calls = {Said(), said, SaidAs("barrier()", "3.py")};
  const std::vector<Said> decoded = DecodeAll(EncodeAll(calls));
  ASSERT_EQ(decoded.size(), calls.size());
  for (size_t i = 0; i < calls.size(); ++i) ExpectSame(decoded[i], calls[i]);
}

TEST(Mismatch, CallsThatFit) {
  EXPECT_EQ(Mismatch(kGroup, {SaidAs("x"), SaidAs("x", "b.py:2")}, false), "");
  EXPECT_EQ(Mismatch(kGroup, {SaidAs("x"), SaidAs("x")}, true), "");
}

TEST(Mismatch, SaysWhoCallsWhatAndWhere) {
  const std::string why = Mismatch(kGroup, {SaidAs("x"), SaidAs("y", "b.py:2")}, false);
  EXPECT_TRUE(Has(why,
                  "group g: the ranks make different calls: rank 4: x at a.py:1; rank 6: y at "
                  "b.py:2"))
      << why;
  const RankGroup four{"g", {0, 1, 2, 3}, {0, 1, 2, 3}, 4, 0};
  const std::string two =
      Mismatch(four, {SaidAs("x"), SaidAs("y"), SaidAs("x"), SaidAs("x")}, false);
  EXPECT_TRUE(Has(two, "rank 0, rank 2, rank 3: x at a.py:1; rank 1: y")) << two;
  EXPECT_TRUE(Has(Mismatch(kGroup, {SaidAs("x"), SaidAs("x", "b.py:2")}, true), "b.py:2"));
}

TEST(Mismatch, PartsThatAreNotExpected) {
  Said first = SaidAs("all_to_all");
  Said second = first;
  first.sent = {1, 2};
  first.received = {1, 5};
  second.sent = {5, 3};
  second.received = {2, 3};
  EXPECT_EQ(Mismatch(kGroup, {first, second}, false), "");
  second.received = {4, 3};
  EXPECT_TRUE(Has(Mismatch(kGroup, {first, second}, false),
                  "rank 4 sends rank 6 a part of size 2 at a.py:1, which expects 4"));
}

std::vector<Said> Batches(std::vector<std::vector<TransferEnd>> ends) {
  std::vector<Said> calls;
  for (auto& list : ends) {
    calls.push_back(SaidAs("batch"));
    calls.back().ends = std::move(list);
  }
  return calls;
}

TEST(Transfers, OfOnePairAndTagInTheirOrder) {
  const auto calls =
      Batches({{End(true, 1, 3, {2}), End(true, 1, 4, {1}), End(true, 1, 3, {5})},
               {End(false, 0, 4, {1}), End(false, 0, 3, {2}), End(false, 0, 3, {5})}});
  std::string wrong;
  const Transfers found = Matched(kGroup, calls, &wrong);
  EXPECT_EQ(wrong, "");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].received, 1u);
  EXPECT_EQ(found[1].received, 0u);
  EXPECT_EQ(found[2].received, 2u);
}

TEST(Transfers, WhatIsLeftOverIsNamed) {
  std::string wrong;
  Matched(kGroup, Batches({{End(true, 1, 3, {2})}, {End(false, 0, 4, {2})}}), &wrong);
  EXPECT_TRUE(Has(wrong, "rank 4's send 3 is received by nobody")) << wrong;
  EXPECT_TRUE(Has(wrong, "rank 6's recv 4 gets nothing")) << wrong;
  std::string other;
  Matched(kGroup, Batches({{End(true, 1, 3, {2})}, {End(false, 0, 3, {1})}}), &other);
  EXPECT_TRUE(Has(other, "rank 4's send 3 meets rank 6's recv 3")) << other;
}

TEST(Transfers, WithARankThatTheGroupHasNot) {
  for (const int64_t peer : {int64_t{2}, int64_t{-1}, int64_t{1} << 32}) {
    for (const bool sends : {true, false}) {
      std::string wrong;
      EXPECT_TRUE(Matched(kGroup, Batches({{End(sends, peer, 3, {2})}, {}}), &wrong).empty());
      EXPECT_TRUE(Has(wrong, "names rank " + std::to_string(peer) + " of the group")) << wrong;
    }
  }
}

TEST(Transfers, InARoundNoRankSendsOrReceivesTwice) {
  // Each of four to each, some twice, of two shapes.
  const int size = 4;
  std::vector<std::vector<TransferEnd>> ends(size);
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      for (int times = 0; times < 1 + (from + to) % 2; ++times) {
        const std::vector<int64_t> dims{1 + (from + 2 * to) % 2};
        ends[from].push_back(End(true, to, times, dims));
        ends[to].push_back(End(false, from, times, dims));
      }
    }
  }
  const auto calls = Batches(ends);
  const RankGroup four{"g", {0, 1, 2, 3}, {0, 1, 2, 3}, 4, 0};
  std::string wrong;
  const Transfers all = Matched(four, calls, &wrong);
  ASSERT_EQ(wrong, "");
  size_t count = 0;
  for (const Transfers& round : TransferRounds(calls, all)) {
    ASSERT_FALSE(round.empty());
    count += round.size();
    for (const Transfer& one : round) {
      EXPECT_EQ(calls[one.from].ends[one.sent].dims, calls[round[0].from].ends[round[0].sent].dims);
      for (const Transfer& other : round) {
        if (&one == &other) continue;
        EXPECT_NE(one.from, other.from);
        EXPECT_NE(one.to, other.to);
      }
    }
  }
  EXPECT_EQ(count, all.size());
}

}  // namespace
}  // namespace xla_cc
