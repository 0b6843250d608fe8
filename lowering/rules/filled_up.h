// A reduce_scatter whose parts are no whole tiles, by one whose parts are: all of it is filled up
// at its end. What a rank gets then begins a little behind where its own part does; the rest of
// that is at the end of what the rank before it gets, which hands it on.
#pragma once

#include "lowering/model/tiles.h"
#include "lowering/rules/emitter.h"

namespace xla_cc {

struct FilledUp {
  int64_t part = 0;   // of a rank, along the dimension
  int64_t whole = 0;  // the same in whole tiles

  // Whether it costs little, and one rank has all that the next one lacks.
  bool Pays(int64_t members) const;
};

hlo::Value FillUp(hlo::Computation& c, const hlo::Value& x, int64_t dim, int64_t members,
                  const FilledUp& sizes);
// What this rank got, of sizes.whole along `dim`, as its own part.
hlo::Value OwnPart(Emitter& e, const hlo::Value& y, int64_t dim, const Groups& groups,
                   const FilledUp& sizes);

}  // namespace xla_cc
