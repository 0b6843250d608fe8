#include "torch_xla_cc/graph/records.h"

#include <atomic>
#include <utility>

namespace xla_cc {
namespace {

std::atomic<bool> recording{false};

// Guarded by the interpreter lock. Never destroyed: threads may outlive main.
std::vector<Record>& Records() {
  static auto* records = new std::vector<Record>;
  return *records;
}

}  // namespace

void SetRecording(bool value) { recording = value; }
bool Recording() { return recording; }
void Note(Record record) {
  if (recording) Records().push_back(std::move(record));
}
std::vector<Record> TakeRecords() { return std::exchange(Records(), {}); }

}  // namespace xla_cc
