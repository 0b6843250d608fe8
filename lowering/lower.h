// From a collective to an HLO module: verify, choose the rule once, build, name, fingerprint.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lowering/capability/capability.h"
#include "lowering/collective.h"

namespace xla_cc {

// Where the caller stands; empty unless debugging is on, since it makes a module per call site.
struct CallSite {
  std::string file;
  int line = 0;
};

struct Lowered {
  Collective collective;             // with its attributes in canonical form
  std::string name;                  // all_gather(dim=0, groups=world)
  std::string identity;              // what ranks of a group must agree on: name, operands
  Encounters encounters;             // and what it became, which groups of others may change
  std::string fingerprint;           // of the bytes; empty with them
  std::string bytes;                 // HloModuleProto; empty if no operand has elements
  std::string text;                  // the same for people
  std::vector<hlo::Shape> results;   // one per operand
  std::vector<size_t> live;          // operands that have elements: those that the module takes
  std::vector<std::string> opcodes;  // the collective instructions in the module
  Rule rule = Rule::kNative;         // fallback if any operand needs it
  std::vector<std::string> ways;     // of a fallback, the outermost first: "all_gather as a sum"
  std::string why;                   // of a fallback; or of operands that travel one by one
  Emitter::Cost cost;                // of the instructions in the module, for each rank
  Emitter::Cost native_cost;         // of the native ones, whether the device takes them or not
  bool unchanged = false;            // the results are the operands: nothing to attach
  bool takes_token = false;          // one more operand and result, s32[1]: see Emitter
};

// Every error is a Status: nothing unverified is built. `forced` takes a rule whatever the table
// says, for measuring; what other ops the rule is built of still follow the table.
Result<Lowered> Lower(const Collective& collective, const std::vector<hlo::Shape>& operands,
                      const Target& target, const CallSite& site = {},
                      std::optional<Rule> forced = std::nullopt);

// The shapes alone, verified.
Result<std::vector<hlo::Shape>> ResultShapes(const Collective& collective,
                                             const std::vector<hlo::Shape>& operands,
                                             const Target& target);

}  // namespace xla_cc
