#include "torch_xla_cc/distributed/host/connections.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <unordered_map>

namespace xla_cc {
namespace {

// PrefixStore keeps its prefix to itself and what is derived from it.
struct Prefix : c10d::PrefixStore {
  static const std::string& Of(const c10d::PrefixStore& store) { return store.*(&Prefix::prefix_); }
};

StorePtr Clone(const StorePtr& store) {
  try {
    return store->clone();
  } catch (const std::exception&) {
    return store;  // one that cannot be cloned is shared
  }
}

}  // namespace

std::shared_ptr<Connections> Connections::To(const StorePtr& store) {
  // Left at the end of the process to threads that still use it.
  static auto& mutex = *new std::mutex;
  static auto& known = *new std::unordered_map<c10d::Store*, std::weak_ptr<Connections>>;
  const std::lock_guard lock(mutex);
  for (auto it = known.begin(); it != known.end();)
    it = it->second.expired() ? known.erase(it) : ++it;
  std::weak_ptr<Connections>& entry = known[store.get()];
  std::shared_ptr<Connections> connections = entry.lock();
  if (!connections) entry = connections = std::make_shared<Connections>(store);
  return connections;
}

StorePtr Connections::Take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      StorePtr connection = std::move(free_.back());
      free_.pop_back();
      return connection;
    }
  }
  return Clone(store_);
}

void Connections::GiveBack(StorePtr connection) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(connection));
}

Connection::Connection(std::shared_ptr<Connections> all, const std::string& prefix)
    : all_(std::move(all)),
      own_(all_->Take()),
      keys_(c10::make_intrusive<c10d::PrefixStore>(prefix, own_)) {}

std::vector<std::vector<uint8_t>> Connection::Await(const std::vector<std::string>& keys,
                                                    std::chrono::milliseconds timeout) const {
  if (all_->IsShared(own_)) {
    keys_->wait(keys, timeout);  // its timeout is not ours to set
  } else {
    keys_->setTimeout(timeout);
  }
  return keys_->multiGet(keys);
}

StoreKeys::StoreKeys(const StorePtr& store) {
  StorePtr inner = store;
  while (auto* part = dynamic_cast<c10d::PrefixStore*>(inner.get())) {
    // The outermost is what the keys of the store within begin with, after that one's own.
    prefix_ = prefix_.empty() ? Prefix::Of(*part) : Prefix::Of(*part) + "/" + prefix_;
    inner = part->getUnderlyingStore();
  }
  all_ = Connections::To(inner);
}

}  // namespace xla_cc
