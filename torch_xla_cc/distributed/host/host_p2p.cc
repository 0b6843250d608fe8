#include "torch_xla_cc/distributed/host/host_p2p.h"

#include <ATen/ATen.h>

#include <cstring>

#include "torch_xla_cc/distributed/host/host_memory.h"
#include "torch_xla_cc/distributed/run_pending.h"
#include "torch_xla_cc/dtypes.h"
#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/gil.h"
#include "torch_xla_cc/groupcall/at_work.h"

namespace xla_cc {
namespace {

constexpr int64_t kHeaderBytes = 512;
constexpr int kDataTag = kLargestTag + 1;
constexpr Timeout kFirstLook{500};
constexpr Timeout kLook{10'000};

// The number of bytes, the tag of the data, the dtype and shape, and the line, as text.
std::string HeaderText(const at::Tensor& x, int64_t bytes, int data_tag, const std::string& site) {
  std::string text =
      std::to_string(bytes) + "\n" + std::to_string(data_tag) + "\n" + ShapeText(x) + "\n" + site;
  text.resize(kHeaderBytes - 1);  // a long path loses its end
  return text;
}

struct Header {
  int64_t bytes;
  int data_tag;
  std::string shape;
  std::string site;
};

Header Parse(const at::Tensor& header) {
  std::vector<std::string> lines(1);
  const auto* text = static_cast<const char*>(header.const_data_ptr());
  for (; *text != 0; ++text) {
    if (*text == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += *text;
    }
  }
  lines.resize(4);
  return {std::stoll(lines[0]), std::stoi(lines[1]), lines[2], lines[3]};
}

Timeout Limit(const PointToPoint& ends, std::chrono::milliseconds timeout) {
  return timeout == kNoTimeout ? ends.call->timeout : Bounded(timeout);
}

[[noreturn]] void ThrowLate(const PointToPoint& ends, Timeout timeout) {
  throw CollectiveTimeout("wait: " + ends.said.what + " at " + ends.said.site +
                          " is not done after " + Milliseconds(timeout));
}

// Runs f, which waits in gloo; what it throws becomes what is wrong with the group.
template <class Function>
void InGloo(const PointToPoint& ends, const Function& f) {
  try {
    try {
      Unlocked(f);
    } catch (const RanksDisagree&) {
      throw;
    } catch (const std::exception& error) {
      Unlocked([&] { ends.check->Explain(*ends.call, ends.said, error.what(), ends.peer); });
    }
  } catch (...) {
    ends.call->End(GroupCall::State::kFailed);
    ends.health->Break(std::current_exception());
    throw;
  }
}

}  // namespace

HostSend::HostSend(PointToPoint ends, const at::Tensor& x, at::Tensor bytes, uint32_t number)
    : Work(-1, c10d::OpType::SEND), ends_(std::move(ends)), x_(x) {
  const int data_tag = kDataTag + static_cast<int>(number % kDataTag);
  Tensors header{at::zeros({kHeaderBytes}, at::kByte)};
  const std::string text = HeaderText(x, bytes.numel(), data_tag, ends_.said.site);
  std::memcpy(header[0].data_ptr(), text.c_str(), text.size());
  if (ends_.to_itself()) {
    ends_.own_mail->Put(ends_.tag, {header[0], std::move(bytes)});
    return;
  }
  InGloo(ends_, [&] {
    parts_.push_back(ends_.gloo->group().send(header, ends_.peer, ends_.tag));
    Tensors data{std::move(bytes)};
    if (data[0].numel() > 0) parts_.push_back(ends_.gloo->group().send(data, ends_.peer, data_tag));
  });
}

void HostSend::Await(Timeout limit) {
  std::unique_lock lock(await_mutex_, std::defer_lock);
  if (!Unlocked([&] { return lock.try_lock_for(limit); })) ThrowLate(ends_, limit);
  if (done_) return;                             // another thread was first
  if (failed_) std::rethrow_exception(failed_);  // gloo would wait once more
  try {
    InGloo(ends_, [&] {
      for (const WorkPtr& part : parts_) part->wait(limit);
      parts_.clear();
      ends_.check->ThrowIfBroken();  // the receiver may have found it wrong
    });
  } catch (...) {
    failed_ = std::current_exception();
    throw;
  }
  ends_.call->End(GroupCall::State::kDone);
  done_ = true;
}

bool HostSend::wait(std::chrono::milliseconds timeout) {
  if (done_) return true;
  RunPendingBeforeWaiting();
  const WaitsForPeers waits;
  if (!watch_.started()) {
    Await(Limit(ends_, timeout));
  } else if (!Unlocked([&] { return watch_.Wait(timeout); })) {
    ThrowLate(ends_, timeout);
  }
  return true;
}

bool HostSend::isCompleted() {
  if (done_) return true;
  RunPendingOnce(asked_);
  if (!watch_.started()) {
    const auto self = c10::intrusive_ptr<HostSend>::reclaim_copy(this);
    watch_.Start([self] { self->Await(self->ends_.call->timeout); });
  }
  return watch_.ended();
}

HostReceive::HostReceive(PointToPoint ends, at::Tensor x)
    : Work(-1, c10d::OpType::RECV), ends_(std::move(ends)), x_(std::move(x)) {
  like_ = at::empty(x_.sizes(), at::TensorOptions(x_.scalar_type()).device(at::kMeta));
  header_ = at::zeros({kHeaderBytes}, at::kByte);
  Tensors headers{header_};
  if (ends_.to_itself()) {
    own_number_ = ends_.own_mail->Ask(ends_.tag);
    return;
  }
  InGloo(ends_, [&] {
    header_work_ = ends_.peer == kAnySource
                       ? ends_.gloo->group().recvAnysource(headers, ends_.tag)
                       : ends_.gloo->group().recv(headers, ends_.peer, ends_.tag);
  });
}

void HostReceive::Begin() {
  const auto self = c10::intrusive_ptr<HostReceive>::reclaim_copy(this);
  taking_.Start([self] { InGloo(self->ends_, [&] { self->Take(); }); });
}

void HostReceive::Take() {
  Parcel own;
  if (ends_.to_itself()) {
    own = ends_.own_mail->Take(ends_.tag, own_number_, ends_.call->timeout);
    header_ = own.header;
  } else {
    header_work_->wait(ends_.call->timeout);
  }
  source_ = ends_.peer == kAnySource ? header_work_->sourceRank() : ends_.peer;
  const Header header = Parse(header_);
  const bool fits = header.shape == ShapeText(like_);
  // What does not fit is taken as well, so that the sender can go on, to hear of it.
  value_ =
      fits ? HostBuffer(like_.sizes(), like_.scalar_type()) : at::empty({header.bytes}, at::kByte);
  std::string wrong;
  if (!fits) {
    wrong = "group " + ends_.group.name + ": " + RankName(ends_.group, source_) + " sends " +
            header.shape + " with tag " + std::to_string(ends_.tag) + " at " + header.site +
            ", and " + RankName(ends_.group, ends_.group.rank) + " receives it as " +
            ShapeText(like_) + " at " + ends_.said.site + ". Send and receive one shape and dtype";
    ends_.check->Break(wrong, false);
  }
  Tensors data{value_.numel() == 0 ? value_ : value_.reshape({-1}).view(at::kByte)};
  if (ends_.to_itself()) {
    if (fits) data[0].copy_(own.bytes);
  } else if (data[0].numel() > 0) {
    ends_.gloo->group().recv(data, source_, header.data_tag)->wait(ends_.call->timeout);
  }
  if (!fits) throw CollectiveMismatch(wrong);
}

bool HostReceive::isCompleted() {
  if (!taking_.ended()) RunPendingOnce(asked_);
  if (!taking_.ended()) return false;
  return taking_.failed() || wait(kNoTimeout);
}

// The sender may have failed or died before it came to its send. So it is asked now and then
// whether the group is broken: gloo would wait out its limit, also for one that was gone before.
bool HostReceive::HasCome(Timeout limit) {
  const WaitsForPeers waits;
  const auto end = std::chrono::steady_clock::now() + limit;
  Timeout look = kFirstLook;
  for (Timeout left = limit; !taking_.Wait(std::min(left, look));
       look = std::min(2 * look, kLook)) {
    left = std::chrono::ceil<Timeout>(end - std::chrono::steady_clock::now());
    if (left <= Timeout::zero()) return false;
    bool gone = false;
    InGloo(ends_, [&] { gone = ends_.check->IsGone(ends_.peer); });
    if (!gone || taking_.Wait(kFirstLook)) continue;  // it may have sent before it ended
    InGloo(ends_, [&] {
      ends_.check->Explain(*ends_.call, ends_.said, "its sender has ended", ends_.peer);
    });
  }
  return true;
}

bool HostReceive::wait(std::chrono::milliseconds timeout) {
  if (done_) return true;
  if (!taking_.ended()) RunPendingBeforeWaiting();
  const Timeout limit = timeout == kNoTimeout ? kLongest : Bounded(timeout);
  if (!Unlocked([&] { return HasCome(limit); })) ThrowLate(ends_, timeout);
  const auto lock = LockTensors(x_.device());
  if (done_) return true;  // another thread was first
  WriteFromHost(x_, value_);
  done_ = true;
  value_.reset();
  ends_.call->End(GroupCall::State::kDone);
  return true;
}

}  // namespace xla_cc
