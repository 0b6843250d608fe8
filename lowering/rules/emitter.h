// Emits collective instructions as the target wants them; the ops' rules are written on top.
//
// What differs between device kinds is decided here, once: which instructions carry a channel id,
// and how order is kept where ranks are threads that compile their own programs. The rules in ops/
// say only which instructions they want.
#pragma once

#include <string>
#include <vector>

#include "lowering/hlo/builder.h"
#include "lowering/model/groups.h"
#include "lowering/model/pairs.h"
#include "lowering/model/reduction.h"
#include "lowering/rules/encounters.h"
#include "lowering/target.h"

namespace xla_cc {

class Emitter {
 public:
  // `identity`: a hash of what ranks must agree on. `token` goes through each collective, where
  // calls take one (Target::CallsTakeTokens); else null.
  Emitter(const Target& target, hlo::Module* module, hlo::Computation* entry, uint64_t identity,
          const hlo::Value* token)
      : target_(target), module_(module), entry_(entry), identity_(identity) {
    if (token != nullptr) token_ = *token;
  }

  hlo::Computation& c() { return *entry_; }
  hlo::Module& module() { return *module_; }
  const Target& target() const { return target_; }
  int64_t world_size() const { return target_.world_size; }
  const hlo::Value& token() const { return token_; }
  void set_token(const hlo::Value& token) { token_ = token; }
  // The opcodes of the collective instructions, in the order of their emission.
  const std::vector<std::string>& opcodes() const { return opcodes_; }
  // The same with what each results in, and the groups that it has.
  const Encounters& encounters() const { return encounters_; }

  // What the instructions so far cost each rank: bytes that it receives, bytes of their results.
  struct Cost {
    int64_t wire_bytes = 0;
    int64_t memory_bytes = 0;
    int64_t instructions = 0;
  };
  const Cost& cost() const { return cost_; }

  // Why the device cannot do what was asked, met while lowering; the module is then of no use.
  const std::string& refusal() const { return refusal_; }
  void Refuse(const std::string& why) { refusal_ = why; }

  // A rule that is built of other ops goes one level deeper for each.
  int depth() const { return depth_; }
  void Enter() { ++depth_; }
  void Leave() { --depth_; }

  // The same at the same depth, on another module and with nothing counted yet.
  Emitter On(hlo::Module* module, hlo::Computation* entry, const hlo::Value& token) const;

  // The ways that were taken, each once, in the order of the first time: "all_gather of its bits".
  const std::vector<std::string>& ways() const { return ways_; }
  void NoteWay(const std::string& way);

  // One instruction each, several operands where the opcode is variadic.
  hlo::Values AllGather(const hlo::Values& xs, int64_t dim, const Groups& groups);
  hlo::Values AllReduce(const hlo::Values& xs, ReduceKind kind, const Groups& groups);
  hlo::Values ReduceScatter(const hlo::Values& xs, ReduceKind kind, int64_t dim,
                            const Groups& groups);
  hlo::Value CollectivePermute(const hlo::Value& x, const Pairs& pairs);
  hlo::Value AllToAll(const hlo::Value& x, int64_t dim, const Groups& groups);
  // `offsets_and_sizes`, one entry a member each: where in x begins what is sent to it, how many
  // rows that is, where in its output they go, how many it sends here. `from_others`: rows that the
  // rank with the most of them receives.
  hlo::Value RaggedAllToAll(const hlo::Value& x, const hlo::Value& output,
                            const hlo::Values& offsets_and_sizes, const Groups& groups,
                            int64_t from_others);
  hlo::Value CollectiveBroadcast(const hlo::Value& x, const Groups& groups);
  void Send(const hlo::Value& x, int64_t channel, const Pairs& pairs);
  hlo::Value Recv(const hlo::Shape& shape, int64_t channel, const Pairs& pairs);

 private:
  // Which ranks an instruction means when it carries a channel: by global id, or not at all.
  enum class Meeting { kByChannel, kWithoutChannel };
  struct Instruction {
    std::string opcode;
    std::vector<hlo::Shape> results;
    hlo::Attributes attributes;
    Meeting meeting;
    int64_t wire_bytes;
    Groups groups = {};
  };
  int64_t ChannelOf(const Instruction& instruction) const;
  hlo::Values Emit(Instruction instruction, const hlo::Values& operands);
  void Count(const std::string& opcode, int64_t wire_bytes, int64_t memory_bytes);

  const Target& target_;
  hlo::Module* module_;
  hlo::Computation* entry_;
  uint64_t identity_;
  hlo::Value token_;
  std::vector<std::string> opcodes_;
  Encounters encounters_;
  std::vector<std::string> ways_;
  std::string refusal_;
  Cost cost_;
  int depth_ = 0;
};

}  // namespace xla_cc
