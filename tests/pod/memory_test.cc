// Ranks that meet in memory: here each is a thread.
#include <gtest/gtest.h>
#include <sys/mman.h>
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <complex>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "pod/memory/group.h"
#include "pod/memory/messages.h"
#include "pod/memory/region.h"
#include "pod/memory/windows.h"

namespace xla_cc::pod::memory {
namespace {

using namespace std::chrono_literals;

struct Rank {
  Rank(std::byte* start, int rank, int size) : region(start, rank, size) {}

  Group& In(const Ranks& ranks) {
    auto& group = groups[ranks];
    if (group == nullptr) {
      const auto place = std::find(ranks.begin(), ranks.end(), region.rank()) - ranks.begin();
      group = std::make_unique<Group>(region, windows, ranks, static_cast<int>(place));
    }
    return *group;
  }

  Region region;
  Windows windows{region};
  Messages messages{region};
  std::map<Ranks, std::unique_ptr<Group>> groups;
};

class World {
 public:
  explicit World(int size) : bytes_(Region::Bytes(size)) {
    void* mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(mapped, MAP_FAILED);
    start_ = static_cast<std::byte*>(mapped);
    for (int rank = 0; rank < size; ++rank) {
      ranks.push_back(std::make_unique<Rank>(start_, rank, size));
    }
  }
  ~World() {
    ranks.clear();  // their threads use it
    munmap(start_, bytes_);
  }

  // On each rank; what they throw, in words.
  std::vector<std::string> Run(const std::function<void(Rank&)>& work) {
    std::vector<std::string> failed(ranks.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < ranks.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          work(*ranks[i]);
        } catch (const Failure& failure) {
          failed[i] = failure.what();
        }
        if (failed[i].empty() && !testing::Test::HasFailure()) return;
        for (const auto& rank : ranks) rank->region.End("another rank has failed");
      });
    }
    for (auto& thread : threads) thread.join();
    return failed;
  }
  void RunWell(const std::function<void(Rank&)>& work) {
    EXPECT_EQ(Run(work), std::vector<std::string>(ranks.size()));
  }

  std::vector<std::unique_ptr<Rank>> ranks;

 private:
  const size_t bytes_;
  std::byte* start_ = nullptr;
};

Message Of(uint64_t group, size_t size, Message::Kind kind = Message::Kind::kPermute) {
  return {kind, group, size};
}

Ranks Every(int size) {
  Ranks ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

template <typename T>
const std::byte* In(const std::vector<T>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}
template <typename T>
std::byte* Out(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

// The same on all ranks for the same arguments: small, so that sums are exact.
template <typename T>
std::vector<T> Numbers(size_t count, int rank, int seed) {
  std::vector<T> made(count);
  for (size_t i = 0; i < count; ++i) {
    made[i] = static_cast<T>((i * 7 + rank * 31 + seed * 13) % 23);
  }
  return made;
}

// One of several windows, in parts that do not divide; where each reduces all; of nothing.
const size_t kCounts[] = {0, 1, 3, 1000, 65537, 3 * kWindowBytes / sizeof(float) + 5};

template <typename T>
void Sums(int size, Type type, size_t count, bool in_place) {
  World world(size);
  world.RunWell([&](Rank& rank) {
    std::vector<T> given = Numbers<T>(count, rank.region.rank(), 1), result(count);
    std::vector<T> expected(count);
    for (int other = 0; other < size; ++other) {
      const auto theirs = Numbers<T>(count, other, 1);
      for (size_t i = 0; i < count; ++i) expected[i] = static_cast<T>(expected[i] + theirs[i]);
    }
    std::vector<T>& into = in_place ? given : result;
    rank.In(Every(size)).AllReduce(In(given), Out(into), count, type, Reduction::kSum);
    EXPECT_TRUE(into == expected);
  });
}

TEST(AllReduce, Sums) {
  for (const size_t count : kCounts) {
    Sums<float>(3, Type::kFloat, count, false);
    Sums<float>(4, Type::kFloat, count, true);
  }
  Sums<float>(1, Type::kFloat, 1000, false);
  Sums<int8_t>(5, Type::kInt8, 1234567, false);  // it wraps around
  Sums<uint16_t>(2, Type::kUint16, 777, false);
  Sums<int64_t>(8, Type::kInt64, 100003, true);
  Sums<double>(7, Type::kDouble, 300007, false);
  Sums<std::complex<float>>(3, Type::kComplexFloat, 1001, false);
  Sums<std::complex<double>>(2, Type::kComplexDouble, 300001, false);
}

template <typename T>
std::vector<T> Reduced(Type type, Reduction reduction, const std::vector<std::vector<T>>& given) {
  std::vector<const std::byte*> all;
  for (const auto& one : given) all.push_back(In(one));
  std::vector<T> result(given[0].size());
  EXPECT_TRUE(Reduce(type, reduction, all, Out(result), result.size()));
  return result;
}

TEST(Reduce, IsThatOfXla) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto least = Reduced<float>(Type::kFloat, Reduction::kMinimum,
                                    {{1, nan, 0.0F, nan}, {2, 5, -0.0F, nan}, {0.5, nan, 0, nan}});
  EXPECT_EQ(least[0], 0.5F);
  EXPECT_EQ(least[1], 5);  // NaNs are left out
  EXPECT_TRUE(std::signbit(least[2]));
  EXPECT_TRUE(std::isnan(least[3]));
  const auto most = Reduced<double>(Type::kDouble, Reduction::kMaximum, {{-0.0, 1}, {0.0, -3}});
  EXPECT_FALSE(std::signbit(most[0]));
  EXPECT_EQ(most[1], 1);
  EXPECT_EQ(Reduced<uint16_t>(Type::kUint16, Reduction::kProduct, {{65535}, {65535}})[0], 1);
  EXPECT_EQ(Reduced<int32_t>(Type::kInt32, Reduction::kSum, {{2147483647}, {1}})[0], -2147483648);
  EXPECT_EQ(Reduced<int8_t>(Type::kInt8, Reduction::kMinimum, {{-5}, {3}})[0], -5);
  EXPECT_EQ(Reduced<uint64_t>(Type::kUint64, Reduction::kMaximum, {{~uint64_t{0}}, {3}})[0],
            ~uint64_t{0});
  using Complex = std::complex<float>;
  EXPECT_EQ(Reduced<Complex>(Type::kComplexFloat, Reduction::kProduct, {{{1, 2}}, {{3, 4}}})[0],
            Complex(-5, 10));
}

// XLA's threads take small numbers for 0, and not all of a process's threads do.
TEST(Reduce, DoesNotDependOnTheThread) {
#ifdef __SSE2__
  const std::vector<float> small{std::numeric_limits<float>::denorm_min()};
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);  // flush to zero, denormals are zero
  const auto sum = Reduced<float>(Type::kFloat, Reduction::kSum, {small, small});
  EXPECT_EQ(_mm_getcsr() & 0x8040, 0x8040U);
  _mm_setcsr(before);
  EXPECT_EQ(sum[0], 2 * small[0]);
#endif
}

TEST(Reduce, RefusesWhatThereIsNot) {
  const std::vector<std::complex<float>> one{{1, 2}};
  std::vector<std::complex<float>> result(1);
  EXPECT_FALSE(Reduce(Type::kComplexFloat, Reduction::kMaximum, {In(one)}, Out(result), 1));
  EXPECT_FALSE(Reduce(Type::kComplexFloat, Reduction::kNone, {In(one)}, Out(result), 1));
  EXPECT_FALSE(Reduce(static_cast<Type>(99), Reduction::kSum, {In(one)}, Out(result), 1));
}

TEST(AllGather, OfAnySize) {
  for (const size_t count : kCounts) {
    for (const bool in_place : {false, true}) {
      World world(3);
      world.RunWell([&](Rank& rank) {
        const int place = 2 - rank.region.rank();  // in this order
        std::vector<float> own = Numbers<float>(count, place, 2), result(3 * count), expected;
        for (int other = 0; other < 3; ++other) {
          const auto theirs = Numbers<float>(count, other, 2);
          expected.insert(expected.end(), theirs.begin(), theirs.end());
        }
        if (in_place) std::copy(own.begin(), own.end(), result.begin() + place * count);
        const std::byte* given = in_place ? In(result) + place * count * sizeof(float) : In(own);
        rank.In({2, 1, 0}).AllGather(given, Out(result), count * sizeof(float));
        EXPECT_TRUE(result == expected);
      });
    }
  }
}

TEST(ReduceScatter, OfAnySize) {
  for (const size_t count : kCounts) {
    for (const bool in_place : {false, true}) {
      World world(3);
      world.RunWell([&](Rank& rank) {
        const int own = rank.region.rank();
        std::vector<float> given = Numbers<float>(3 * count, own, 3), result(count);
        std::vector<float> expected(count);
        for (int other = 0; other < 3; ++other) {
          const auto theirs = Numbers<float>(3 * count, other, 3);
          for (size_t i = 0; i < count; ++i) expected[i] += theirs[own * count + i];
        }
        std::byte* into = in_place ? Out(given) : Out(result);
        rank.In(Every(3)).ReduceScatter(In(given), into, count, Type::kFloat, Reduction::kSum);
        if (in_place) given.resize(count);
        EXPECT_TRUE((in_place ? given : result) == expected);
      });
    }
  }
}

// Of which a rank is in some, and is slow now and then: windows are used again across groups.
TEST(Groups, OneAfterTheOther) {
  const std::vector<Ranks> groups = {{0, 1}, {1, 2}, {0, 1, 2, 3}, {3, 0}, {2, 3}, {0, 2}, {1, 3}};
  World world(4);
  world.RunWell([&](Rank& rank) {
    std::mt19937 same(5), own(rank.region.rank());
    for (int step = 0; step < 1000; ++step) {
      const Ranks& ranks = groups[same() % groups.size()];
      const size_t count = step % 50 == 0 ? 2 * kWindowBytes / 8 + 3 : same() % 300;
      if (std::find(ranks.begin(), ranks.end(), rank.region.rank()) == ranks.end()) continue;
      if (own() % 200 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      std::vector<double> given = Numbers<double>(count, rank.region.rank(), step), sum(count);
      std::vector<double> expected(count);
      for (const int other : ranks) {
        const auto theirs = Numbers<double>(count, other, step);
        for (size_t i = 0; i < count; ++i) expected[i] += theirs[i];
      }
      rank.In(ranks).AllReduce(In(given), Out(sum), count, Type::kDouble, Reduction::kSum);
      ASSERT_TRUE(sum == expected) << step;
    }
  });
}

TEST(Groups, OnSeveralThreads) {
  World world(3);
  world.RunWell([&](Rank& rank) {
    Group& every = rank.In(Every(3));
    Group& backwards = rank.In({2, 1, 0});
    const auto meets = [&](Group& group) {
      for (int i = 0; i < 500; ++i) {
        std::vector<float> x(100, static_cast<float>(i));
        group.AllReduce(In(x), Out(x), x.size(), Type::kFloat, Reduction::kSum);
        EXPECT_EQ(x, std::vector<float>(100, 3.0F * i));
      }
    };
    std::thread other([&] { meets(backwards); });
    meets(every);
    other.join();
  });
}

TEST(Groups, AreTheSameForTheSameRanks) {
  World world(2);
  Region& region = world.ranks[0]->region;
  const int first = region.PlaceOf({0, 1});
  EXPECT_EQ(world.ranks[1]->region.PlaceOf({0, 1}), first);
  EXPECT_NE(region.PlaceOf({1, 0}), first);
  EXPECT_EQ(region.PlaceOf({0, 1}), first);
}

TEST(Groups, AreNotWithoutEnd) {
  World world(2);
  Region& region = world.ranks[0]->region;
  for (int i = 0; i < kMostGroups; ++i) region.PlaceOf({i});
  EXPECT_THROW(region.PlaceOf({kMostGroups}), Failure);
}

void AreDifferent(const std::function<void(Rank&)>& first, const std::function<void(Rank&)>& other,
                  const std::string& said) {
  World world(2);
  const auto failed =
      world.Run([&](Rank& rank) { (rank.region.rank() == 0 ? first : other)(rank); });
  EXPECT_NE(failed[0].find(said), std::string::npos) << failed[0];
  EXPECT_NE(failed[1], "");
}

void Sum(Rank& rank, size_t count, Type type = Type::kFloat,
         Reduction reduction = Reduction::kSum) {
  std::vector<float> x(count);
  rank.In({0, 1}).AllReduce(In(x), Out(x), count, type, reduction);
}

void Gathered(Rank& rank, size_t bytes) {
  std::vector<std::byte> x(bytes), result(2 * bytes);
  rank.In({0, 1}).AllGather(In(x), Out(result), bytes);
}

TEST(Differences, AreErrorsOnBoth) {
  AreDifferent([](Rank& rank) { Sum(rank, 4); }, [](Rank& rank) { Gathered(rank, 16); },
               "rank 0 is in an all_reduce of 16 bytes (float, sum), and rank 1 in an all_gather");
  AreDifferent([](Rank& rank) { Sum(rank, 4); }, [](Rank& rank) { Sum(rank, 5); },
               "and rank 1 in an all_reduce of 20 bytes");
  // Whose first parts are of one size.
  AreDifferent([](Rank& rank) { Sum(rank, kWindowBytes); },
               [](Rank& rank) { Sum(rank, 2 * kWindowBytes); }, "is in an all_reduce");
  AreDifferent([](Rank& rank) { Sum(rank, 4); }, [](Rank& rank) { Sum(rank, 4, Type::kInt32); },
               "int32");
  AreDifferent([](Rank& rank) { Sum(rank, 4); },
               [](Rank& rank) { Sum(rank, 4, Type::kFloat, Reduction::kMaximum); }, "maximum");
}

// To the next rank and from the one before: more than fits into a ring, and nothing.
TEST(Messages, GoAround) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4096}, 5 * (size_t{1} << 20) + 3}) {
    World world(3);
    world.RunWell([&](Rank& rank) {
      const int own = rank.region.rank(), next = (own + 1) % 3, before = (own + 2) % 3;
      for (int step = 0; step < 5; ++step) {
        const auto sent = Numbers<uint8_t>(size, own, step);
        std::vector<uint8_t> received(size);
        const auto a = rank.messages.Receive(Of(0, size), before, Out(received));
        const auto b = rank.messages.Send(Of(0, size), next, In(sent));
        rank.messages.Wait(a);
        rank.messages.Wait(b);
        EXPECT_TRUE(received == Numbers<uint8_t>(size, before, step));
      }
    });
  }
}

TEST(Messages, OfOnePairStayInOrder) {
  World world(2);
  world.RunWell([&](Rank& rank) {
    const int other = 1 - rank.region.rank();
    std::vector<std::vector<int>> sent, received;
    std::vector<uint64_t> numbers;
    for (int i = 0; i < 300; ++i) {
      sent.emplace_back(i * 7 % 2000, i);
      received.emplace_back(i * 7 % 2000);
    }
    for (int i = 0; i < 300; ++i) {
      numbers.push_back(
          rank.messages.Send(Of(1, sent[i].size() * sizeof(int)), other, In(sent[i])));
      numbers.push_back(
          rank.messages.Receive(Of(1, sent[i].size() * sizeof(int)), other, Out(received[i])));
    }
    for (const uint64_t number : numbers) rank.messages.Wait(number);
    EXPECT_TRUE(received == sent);
  });
}

TEST(Messages, ThroughTheShortestRings) {
  World world(kMostRanks);
  world.RunWell([&](Rank& rank) {
    const int own = rank.region.rank(), size = kMostRanks;
    const auto sent = Numbers<uint8_t>(100'000, own, 0);
    std::vector<uint8_t> received(sent.size());
    const auto a =
        rank.messages.Receive(Of(0, sent.size()), (own + size - 1) % size, Out(received));
    const auto b = rank.messages.Send(Of(0, sent.size()), (own + 1) % size, In(sent));
    rank.messages.Wait(a);
    rank.messages.Wait(b);
    EXPECT_TRUE(received == Numbers<uint8_t>(sent.size(), (own + size - 1) % size, 0));
    std::vector<float> x(1000, 1.0F);
    rank.In(Every(size)).AllReduce(In(x), Out(x), x.size(), Type::kFloat, Reduction::kSum);
    EXPECT_EQ(x[999], size);
  });
}

TEST(Messages, OnTwoThreads) {
  World world(2);
  world.RunWell([&](Rank& rank) {
    const int other = 1 - rank.region.rank();
    const size_t size = 3 << 20;
    const auto given = Numbers<uint8_t>(size, rank.region.rank(), 0);
    std::vector<uint8_t> received(size);
    std::thread sends([&] {
      for (int i = 0; i < 5; ++i) {
        rank.messages.Wait(rank.messages.Send(Of(0, size), other, In(given)));
      }
    });
    for (int i = 0; i < 5; ++i) {
      rank.messages.Wait(rank.messages.Receive(Of(0, size), other, Out(received)));
      EXPECT_TRUE(received == Numbers<uint8_t>(size, other, 0));
    }
    sends.join();
  });
}

TEST(Messages, ToOneself) {
  World world(1);
  world.RunWell([&](Rank& rank) {
    std::vector<int> sent(1 << 20, 3), received(1 << 20);
    const size_t bytes = sent.size() * sizeof(int);
    const auto a = rank.messages.Send(Of(0, bytes), 0, In(sent));
    const auto b = rank.messages.Receive(Of(0, bytes), 0, Out(received));
    rank.messages.Wait(a);
    rank.messages.Wait(b);
    EXPECT_TRUE(received == sent);
  });
}

void Sends(Rank& rank, const Message& what, int to = 1) {
  std::vector<std::byte> x(what.size);
  rank.messages.Wait(rank.messages.Send(what, to, In(x)));
}

TEST(Messages, ThatDifferAreErrors) {
  for (const Message& sent : {Of(0, 17), Of(1, 16), Of(0, 16, Message::Kind::kAllToAll)}) {
    World world(2);
    const auto failed = world.Run([&](Rank& rank) {
      if (rank.region.rank() == 0) return Sends(rank, sent);
      std::vector<std::byte> x(16);
      rank.messages.Wait(rank.messages.Receive(Of(0, 16), 0, Out(x)));
    });
    EXPECT_NE(failed[1].find("rank 1 receives of rank 0 16 bytes of a permute in group 0, and that "
                             "one sends " +
                             std::to_string(sent.size) + " bytes of a"),
              std::string::npos)
        << failed[1];
  }
}

TEST(Messages, OfWhoOnlySends) {
  World world(2);
  std::atomic<bool> all_sent{false};
  world.RunWell([&](Rank& rank) {
    const size_t size = 3 << 20;  // more than there is room for
    const int times = 5;
    if (rank.region.rank() == 0) {
      for (int i = 0; i < times; ++i) {
        auto given = Numbers<uint8_t>(size, 0, i);
        rank.messages.Wait(rank.messages.Send(Of(0, size), 1, In(given)));
        given.assign(size, 0);  // it is the owner's again
      }
      all_sent = true;
      EXPECT_TRUE(rank.messages.WaitForRoom(0, 20s));
      return;
    }
    while (!all_sent) std::this_thread::yield();
    for (int i = 0; i < times; ++i) {
      std::vector<uint8_t> received(size);
      rank.messages.Wait(rank.messages.Receive(Of(0, size), 0, Out(received)));
      EXPECT_TRUE(received == Numbers<uint8_t>(size, 0, i));
    }
  });
}

// A difference that this rank finds, and an end, while what it sends is under way.
TEST(Messages, EndWhileSome) {
  for (const bool differ : {false, true}) {
    World world(3);
    const auto failed = world.Run([&](Rank& rank) {
      if (rank.region.rank() == 2) {
        if (differ) Sends(rank, Of(0, 17), 0);
        return;
      }
      if (rank.region.rank() == 1) return;
      std::vector<std::byte> x(4 << 20), y(16);
      rank.messages.Wait(rank.messages.Send(Of(0, x.size()), 1, In(x)));
      if (!differ) rank.region.End("rank 1 has gone");
      rank.messages.Wait(rank.messages.Receive(Of(0, 16), 2, Out(y)));
    });
    EXPECT_NE(failed[0].find(differ ? "17 bytes of a permute" : "rank 1 has gone"),
              std::string::npos)
        << failed[0];
  }
}

TEST(Messages, ToARankThatHasLeft) {
  World world(2);
  world.RunWell([&](Rank& rank) {
    if (rank.region.rank() == 1) return;
    std::vector<std::byte> x(4 << 20);
    rank.messages.Wait(rank.messages.Send(Of(0, x.size()), 1, In(x)));
    EXPECT_FALSE(rank.messages.WaitForRoom(0, 10ms));
    rank.messages.Drop(1);
    EXPECT_TRUE(rank.messages.WaitForRoom(0, 20s));
    rank.messages.Wait(rank.messages.Send(Of(0, x.size()), 1, In(x)));  // and later
    EXPECT_TRUE(rank.messages.WaitForRoom(0, 20s));
  });
}

// Rank 1 never comes.
TEST(End, WakesWhoWaits) {
  for (const bool message : {false, true}) {
    World world(2);
    std::thread ends([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      world.ranks[0]->region.End("rank 1 has gone");
    });
    const auto failed = world.Run([&](Rank& rank) {
      if (rank.region.rank() == 1) return;
      std::vector<float> x(4);
      if (!message) return Sum(rank, 4);
      rank.messages.Wait(rank.messages.Receive(Of(0, 16), 1, Out(x)));
    });
    ends.join();
    EXPECT_EQ(failed[0], "rank 1 has gone");
    EXPECT_THROW(Sum(*world.ranks[0], 4), Failure);  // and so does what comes later
  }
}

TEST(Region, IsForSoManyRanks) {
  EXPECT_THROW(Region(nullptr, 0, kMostRanks + 1), Failure);
  EXPECT_THROW(Region(nullptr, 2, 2), Failure);
}

}  // namespace
}  // namespace xla_cc::pod::memory
