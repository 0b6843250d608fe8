// What this process has issued while somebody records it.
#pragma once

#include <vector>

#include "torch_xla_cc/graph/plan_cache.h"
#include "torch_xla_cc/site.h"

namespace xla_cc {

// A collective that a rank's device was given.
struct Record {
  int64_t rank;
  PlanPtr plan;
  std::vector<hlo::Shape> operands;
  Site site;
};

void SetRecording(bool recording);
bool Recording();
// Keeps it if recording is on. This and the next need the interpreter lock.
void Note(Record record);
std::vector<Record> TakeRecords();

}  // namespace xla_cc
