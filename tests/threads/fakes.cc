#include "tests/threads/fakes.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "torch_xla_cc/threads/compile_gate.h"

namespace xla_cc {
namespace {

std::atomic<int> gates{0};

// What a graph that compiles waits at, once it is compiled.
struct Barrier {
  std::mutex mutex;
  std::condition_variable changed;
  bool waits = false;
  bool open = false;
  bool returned = false;
};
thread_local Barrier* barrier = nullptr;

}  // namespace

Site Line(int number) {
  static char places[1000];
  return {reinterpret_cast<PyCodeObject*>(&places[number]), number};
}

std::string Text(const Site& site) {
  return site.code == nullptr ? "nowhere" : "line " + std::to_string(site.instruction);
}

std::shared_ptr<const Lowered> AllReduceOf(std::vector<std::vector<int64_t>> groups,
                                           const std::string& operand) {
  auto lowered = std::make_shared<Lowered>();
  AllReduce node;
  node.groups = Groups(std::move(groups));
  lowered->collective = node;
  lowered->name = "all_reduce(groups=" + node.groups.ToString() + ")";
  lowered->identity = lowered->name + " of " + operand;
  return lowered;
}

int GatesMade() { return gates; }

// The lock of a device: `run` waits at it when it calls AtGate.
struct CompileGate::Lock {
  Barrier own;
  std::thread runner;
};

bool AtGate() {
  if (barrier == nullptr) return true;
  std::unique_lock lock(barrier->mutex);
  barrier->waits = true;
  barrier->changed.notify_all();
  barrier->changed.wait(lock, [] { return barrier->returned || barrier->open; });
  return barrier->open;
}

bool CompileGate::Works() { return true; }
CompileGate::CompileGate(int64_t) : lock_(std::make_unique<Lock>()) { ++gates; }
CompileGate::~CompileGate() { Open(false); }
bool CompileGate::Waits() const { return lock_->own.waits; }

void CompileGate::Compile(std::function<void()> run) {
  Barrier& own = lock_->own;
  lock_->runner = std::thread([&own, run = std::move(run)] {
    barrier = &own;
    run();
    const std::lock_guard lock(own.mutex);
    own.returned = true;
    own.changed.notify_all();
  });
  std::unique_lock lock(own.mutex);
  own.changed.wait(lock, [&] { return own.waits || own.returned; });
}

void CompileGate::Open(bool go) {
  {
    const std::lock_guard lock(lock_->own.mutex);
    lock_->own.open = go;
    lock_->own.returned = true;
    lock_->own.changed.notify_all();
  }
  if (lock_->runner.joinable()) lock_->runner.join();
}

int64_t TensorsMade() { return 0; }

}  // namespace xla_cc
