// Which way an all_gather or reduce_scatter goes on a target whose compiler may lose it.
#pragma once

#include <optional>

#include "lowering/capability/kept.h"
#include "lowering/model/torus.h"

namespace xla_cc {

struct Route {
  bool reshaped = false;   // in a shape that is kept
  bool in_stages = false;  // and in groups that are: of two neighbours, and of the others
};

// The routes of the operands of one call: by the model of docs/spec.md, "Forms that a TPU keeps".
class Routes {
 public:
  Routes(const Target& target, const Groups& groups) : target_(target), groups_(groups) {}

  Route Of(const Instruction& instruction);
  // Of what goes in stages.
  const Neighbours& stages() const { return *stages_; }

 private:
  // What goes over the links, of which each carries its part in its own time.
  struct Way {
    double hops = 0;
    double blocks = 0;  // over the busiest link
  };
  class Model;

  void Look(int64_t members);
  Way WayOf(const Groups& groups, int64_t members) const;

  const Target& target_;
  const Groups& groups_;
  bool looked_ = false;
  Way all_;
  std::optional<Neighbours> stages_;  // those of all ranks, if there are any
  Way pairs_;
  Way others_;
};

}  // namespace xla_cc
