// Connections to the store in which the ranks of a world meet. A wait in a store keeps its
// connection from others; one more costs a look-up of its host and a socket at the store's process.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace xla_cc {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

// Those that this process has to one store: as many as have been in use at one time.
class Connections {
 public:
  explicit Connections(StorePtr store) : store_(std::move(store)) {}

  // All groups that meet in one store share its connections.
  static std::shared_ptr<Connections> To(const StorePtr& store);

  StorePtr Take();
  void GiveBack(StorePtr connection);
  bool IsShared(const StorePtr& connection) const { return connection == store_; }

 private:
  const StorePtr store_;
  std::mutex mutex_;
  std::vector<StorePtr> free_;
};

// One of them, the caller's alone while this lives, with the keys of one group.
class Connection {
 public:
  Connection(std::shared_ptr<Connections> all, const std::string& prefix);
  ~Connection() { all_->GiveBack(std::move(own_)); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  c10d::Store* operator->() const { return keys_.get(); }
  // The values of these keys; waits for them, not longer than that.
  std::vector<std::vector<uint8_t>> Await(const std::vector<std::string>& keys,
                                          std::chrono::milliseconds timeout) const;

 private:
  std::shared_ptr<Connections> all_;
  StorePtr own_;
  StorePtr keys_;
};

// A part of a store: where its connections are, and what its keys begin with there.
class StoreKeys {
 public:
  explicit StoreKeys(const StorePtr& store);
  Connection Connect() const { return {all_, prefix_}; }

 private:
  std::shared_ptr<Connections> all_;
  std::string prefix_;
};

}  // namespace xla_cc
