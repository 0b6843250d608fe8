// Shared memory: used again, given back, and refused when it is not there.
#include "pod/segments.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>

#include "pod/failure.h"

namespace xla_cc::pod {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

Segment TakeAndClose(SegmentPool& pool, size_t bytes) {
  const Segment segment = pool.Take(bytes);
  if (segment.is_new) close(segment.descriptor);
  return segment;
}

TEST(SegmentPool, UsesAgainWhatWasReturned) {
  SegmentPool pool(64 * kMiB);
  const Segment first = TakeAndClose(pool, kMiB + 1);
  EXPECT_TRUE(first.is_new);
  EXPECT_GE(first.size, kMiB + 1);
  std::memset(first.data, 1, first.size);
  const Segment second = TakeAndClose(pool, kMiB + 1);
  EXPECT_NE(second.id, first.id);
  pool.Return(first.id);
  const Segment third = TakeAndClose(pool, kMiB + 5);
  EXPECT_EQ(third.id, first.id);
  EXPECT_FALSE(third.is_new);
  pool.Return(third.id);
  EXPECT_TRUE(TakeAndClose(pool, 20 * kMiB).is_new) << "one that is too small";
  EXPECT_TRUE(TakeAndClose(pool, 1).is_new) << "one that is far too large";
}

TEST(SegmentPool, DropsWhatIsTooMuch) {
  SegmentPool pool(3 * kMiB);
  std::vector<int64_t> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(TakeAndClose(pool, kMiB).id);
  for (const int64_t id : ids) pool.Return(id);
  EXPECT_EQ(pool.Drop().size(), 1u);
  EXPECT_TRUE(pool.Drop().empty());
}

TEST(SegmentPool, NobodyCanChangeTheSize) {
  SegmentPool pool(kMiB);
  const Segment segment = pool.Take(kMiB);
  EXPECT_NE(ftruncate(segment.descriptor, 0), 0);
  EXPECT_NE(ftruncate(segment.descriptor, static_cast<off_t>(2 * segment.size)), 0);
  close(segment.descriptor);
}

TEST(SegmentPool, MemoryThatIsNotThereIsAnError) {
  // If it were asked for, the kernel would end processes of this machine until it is there.
  const rlimit one_gib = {size_t{1} << 30, size_t{1} << 30};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &one_gib), 0);
  SegmentPool pool(kMiB);
  try {
    pool.Take(size_t{1} << 62);
    FAIL() << "4 EiB were given";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), abi::Code::kResourceExhausted);
    EXPECT_NE(failure.message().find("bytes of shared memory"), std::string::npos);
  }
  EXPECT_TRUE(TakeAndClose(pool, kMiB).is_new) << "the pool still works";
}

}  // namespace
}  // namespace xla_cc::pod
