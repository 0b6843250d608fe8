// Names of targets.
#include "lowering/target.h"

#include "tests/lowering/testing.h"

namespace xla_cc {
namespace {

struct Named {
  const char* name;
  int64_t given;
  DeviceKind kind;
  int64_t world_size;
};

void PrintTo(const Named& named, std::ostream* out) { *out << named.name << "/" << named.given; }

class Names : public testing::TestWithParam<Named> {};

TEST_P(Names, AreRead) {
  const Named& named = GetParam();
  const Result<Target> target = ParseTarget(named.name, named.given);
  ASSERT_TRUE(target.ok()) << target.status().message();
  EXPECT_EQ(target.value().kind, named.kind);
  EXPECT_EQ(target.value().world_size, named.world_size);
  EXPECT_EQ(target.value().name, named.name);
  EXPECT_EQ(target.value().ToString(),
            std::string(named.name) + "/" + std::to_string(named.world_size));
  EXPECT_EQ(target.value().RanksAreThreads(),
            named.kind == DeviceKind::kCpu && named.world_size > 1);
  EXPECT_EQ(
      target.value().CallsTakeTokens(),
      (named.kind == DeviceKind::kCpu || named.kind == DeviceKind::kPod) && named.world_size > 1);
  EXPECT_FALSE(target.value().partitioned);

  const Result<Target> partitions = ParseTarget("spmd:" + std::string(named.name), named.given);
  ASSERT_TRUE(partitions.ok()) << partitions.status().message();
  EXPECT_EQ(partitions.value().kind, named.kind);
  EXPECT_EQ(partitions.value().world_size, named.world_size);
  EXPECT_EQ(partitions.value().name, "spmd:" + std::string(named.name));
  EXPECT_EQ(partitions.value().device, target.value().device);
  EXPECT_TRUE(partitions.value().partitioned);
  EXPECT_FALSE(partitions.value().RanksAreThreads());
  EXPECT_FALSE(partitions.value().CallsTakeTokens());
}

INSTANTIATE_TEST_SUITE_P(
    Target, Names,
    testing::Values(
        Named{"cpu", 1, DeviceKind::kCpu, 1}, Named{"cpu", 4, DeviceKind::kCpu, 4},
        Named{"cpu:8", 0, DeviceKind::kCpu, 8}, Named{"CPU", 2, DeviceKind::kCpu, 2},
        Named{"tpu", 8, DeviceKind::kTpu, 8}, Named{"tpu:v5e", 256, DeviceKind::kTpu, 256},
        Named{"tpu:v5x8", 0, DeviceKind::kTpu, 8}, Named{"tpu:v5e:2x4", 0, DeviceKind::kTpu, 8},
        Named{"tpu:v5e:2x4", 8, DeviceKind::kTpu, 8},
        Named{"tpu:v4:4x4x8", 0, DeviceKind::kTpu, 128},
        Named{"gpu:h100x8", 0, DeviceKind::kGpu, 8}, Named{"gpu:h100", 16, DeviceKind::kGpu, 16},
        Named{"gpu:mi300x", 8, DeviceKind::kGpu, 8}, Named{"gpu:rtx4090", 2, DeviceKind::kGpu, 2},
        Named{"gpu:rtx4090x2", 0, DeviceKind::kGpu, 2},
        Named{"tpu:v5e:1024x1024", 0, DeviceKind::kTpu, 1 << 20},
        Named{"cuda:a100x4", 0, DeviceKind::kGpu, 4}, Named{"rocm", 8, DeviceKind::kGpu, 8},
        Named{"pod", 4, DeviceKind::kPod, 4}, Named{"POD:8", 0, DeviceKind::kPod, 8},
        Named{"neuron", 32, DeviceKind::kNeuron, 32},
        Named{"tensorcore9000", 2, DeviceKind::kOther, 2},
        Named{"tpu", 1 << 20, DeviceKind::kTpu, 1 << 20}));

struct Unreadable {
  const char* label;
  const char* name;
  int64_t given;
  const char* begins;
  const char* remedy;
};

void PrintTo(const Unreadable& u, std::ostream* out) { *out << u.name << "/" << u.given; }

class BadNames : public testing::TestWithParam<Unreadable> {};

TEST_P(BadNames, AreRefused) {
  const std::string message = MessageOf(ParseTarget(GetParam().name, GetParam().given));
  EXPECT_EQ(message.find(GetParam().begins), 0u) << message;
  EXPECT_NE(message.find(std::string(" (") + GetParam().label + "). " + GetParam().remedy),
            std::string::npos)
      << message;
}

constexpr char kName[] = "Write for instance 'cpu', 'tpu:v5e:2x4' or 'gpu:h100x8'";
constexpr char kSize[] = "Give a world_size, or a topology in the name: 'tpu:v5e:2x4'";
constexpr char kOther[] = "Leave world_size out, or name another topology";

INSTANTIATE_TEST_SUITE_P(
    Target, BadNames,
    testing::Values(
        Unreadable{"T1", "", 4, "target: name = '', but it must be a device kind", kName},
        Unreadable{"T1", ":v5e:2x4", 0, "target: name = ':v5e:2x4', but", kName},
        Unreadable{"T1", "tpu:", 8, "target: name = 'tpu:', but", kName},
        Unreadable{"T1", "tpu:v5e:", 8, "target: name = 'tpu:v5e:', but", kName},
        Unreadable{"T1", "tpu::2x4", 0, "target: name = 'tpu::2x4', but", kName},
        Unreadable{"T1", "tpu:v5e:2x4:1", 8, "target: name = 'tpu:v5e:2x4:1', but", kName},
        Unreadable{"T2", "cpu", 0, "target: world_size = 0, but it must be 1 to 1048576 for 'cpu'",
                   kSize},
        Unreadable{"T2", "cpu", -4, "target: world_size = -4, but it must be 1 to", kSize},
        Unreadable{"T2", "tpu", (1 << 20) + 1, "target: world_size = 1048577, but", kSize},
        Unreadable{"T2", "tpu:v5e:2x4", 16,
                   "target: world_size = 16, but it must be the number of devices of "
                   "'tpu:v5e:2x4', 8",
                   kOther},
        Unreadable{"T2", "gpu:h100x8", 4, "target: world_size = 4, but", kOther}));

// What looks like a topology and is none is no name without one.
class BadTopologies : public testing::TestWithParam<const char*> {};

TEST_P(BadTopologies, AreRefused) {
  for (const int64_t given : {0, 8}) {
    EXPECT_EQ(MessageOf(ParseTarget(GetParam(), given)),
              std::string("target: name = '") + GetParam() +
                  "', but it must be a topology of 1 to 1048576 devices (T2). "
                  "Write for instance 'tpu:v5e:2x4' or 'gpu:h100x8'.");
  }
}

INSTANTIATE_TEST_SUITE_P(Target, BadTopologies,
                         testing::Values("tpu:v5e:0", "tpu:v5e:0x4", "tpu:v5e:2x", "tpu:v5e:x4",
                                         "tpu:v5e:2xx4", "tpu:v5e:-2x4", "tpu:v5e:x",
                                         "tpu:v5e:2048x2048", "tpu:v5e:1024x1025",
                                         "tpu:v5e:99999999999999999999", "gpu:h100x0",
                                         "gpu:h100x9999999"));

}  // namespace
}  // namespace xla_cc
