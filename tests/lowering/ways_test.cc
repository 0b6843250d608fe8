// The tables of ways: named apart, told to callers and in metadata, and described in docs/spec.md.
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "tests/lowering/testing.h"
#include "tests/lowering/wire_reader.h"

namespace xla_cc {
namespace {

using hlo::ElementType;

template <class T>
std::vector<std::string> NamesOf() {
  std::vector<std::string> names;
  for (const Way<T>& way : T::Fallback().first) names.push_back(way.name);
  for (const Way<T>& way : T::Fallback().cheapest) names.push_back(way.name);
  return names;
}

std::map<std::string, std::vector<std::string>> AllWays() {
  return {
#define COLLECTIVE(Type, name) {#name, NamesOf<Type>()},
#include "lowering/collectives.def"
#undef COLLECTIVE
  };
}

TEST(Ways, HaveNamesOfTheirOwn) {
  for (const auto& [op, names] : AllWays()) {
    EXPECT_FALSE(names.empty()) << op;
    EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size()) << op;
  }
}

TEST(Ways, AreDescribedInTheSpecification) {
  std::ifstream file("docs/spec.md");
  ASSERT_TRUE(file.good());
  std::stringstream text;
  text << file.rdbuf();
  for (const auto& [op, names] : AllWays()) {
    const size_t begin = text.str().find("\n## " + op + "\n");
    ASSERT_NE(begin, std::string::npos) << op;
    const std::string section =
        text.str().substr(begin + 1, text.str().find("\n## ", begin + 1) - begin);
    for (const std::string& name : names) {
      EXPECT_NE(section.find("*" + name + "*"), std::string::npos) << op << ": " << name;
    }
  }
}

TEST(Ways, NodesHaveTheNameOfTheirRow) {
#define COLLECTIVE(Type, name) EXPECT_EQ(std::string(Type::kName), #name);
#include "lowering/collectives.def"
#undef COLLECTIVE
}

std::vector<std::string> WaysOf(const Collective& collective, const std::string& target,
                                ElementType type = ElementType::kF32) {
  return MustLower(collective, {{type, {8, 8}}}, TargetOf(target)).ways;
}

using Names = std::vector<std::string>;

TEST(Ways, AreToldToTheCaller) {
  EXPECT_EQ(WaysOf(AllGather{}, "tpu:v5e:2x4"), Names{});
  EXPECT_EQ(WaysOf(AllToAll{}, "cpu:4"), Names{"all_to_all by all_gather"});
  EXPECT_EQ(WaysOf(AllToAll{0, 1, {}, {}}, "cpu:4"),
            (Names{"all_to_all along one dimension", "all_to_all by all_gather"}));
  EXPECT_EQ(WaysOf(CollectivePermute{Ring(4)}, "cpu:4"), Names{"collective_permute in pairs"});
  EXPECT_EQ(WaysOf(AllReduce{}, "cpu:4", ElementType::kF8E5M2),
            Names{"all_reduce in another type"});
  EXPECT_EQ(WaysOf(AllGather{0, Groups(Lists{{0, 1, 2}})}, "cpu:4"), Names{"all_gather as a sum"});
  EXPECT_EQ(WaysOf(ReduceScatter{{ReduceKind::kXor}, 0, {}, {}}, "cpu:4", ElementType::kS32),
            (Names{"reduce_scatter by all_to_all", "all_to_all by all_gather"}));
}

TEST(Ways, AreInTheMetadataOfEveryInstruction) {
  const Lowered lowered = MustLower(AllToAll{}, {F32({8, 8})}, Cpu4());
  const std::string name =
      lowered.name + " fallback: " + lowered.why + " (all_to_all by all_gather)";
  for (const ReadInstruction& instruction : ReadModule(lowered.bytes).Instructions()) {
    EXPECT_EQ(instruction.proto.Sub(7).Bytes(2), name);
  }
}

}  // namespace
}  // namespace xla_cc
