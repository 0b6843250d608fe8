#include "torch_xla_cc/threads/failure.h"

#include <atomic>

#include "torch_xla_cc/errors.h"

namespace xla_cc {
namespace {

Failure Numbered(const RanksDisagree& error, Failure::Kind kind) {
  Failure failure = Because(error.what(), kind);
  failure.number = error.failure;
  return failure;
}

}  // namespace

void Failure::GiveNumber() {
  static std::atomic<uint64_t> last{0};
  if (number == 0) number = ++last;
}

std::string Failure::Text() const {
  std::string text;
  for (const Phrase& phrase : phrases) {
    text += phrase.text;
    if (phrase.site.code != nullptr) text += xla_cc::Text(phrase.site);
  }
  return text;
}

void Failure::Throw() const {
  switch (kind) {
    case Kind::kMismatch:
      throw CollectiveMismatch(Text(), number);
    case Kind::kTimeout:
      throw CollectiveTimeout(Text(), number);
    default:
      throw RanksDisagree(Text(), number);
  }
}

Failure FailureOf(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CollectiveMismatch& mismatch) {
    return Numbered(mismatch, Failure::Kind::kMismatch);
  } catch (const CollectiveTimeout& timeout) {
    return Numbered(timeout, Failure::Kind::kTimeout);
  } catch (const RanksDisagree& disagree) {
    return Numbered(disagree, Failure::Kind::kOther);
  } catch (const std::exception& other) {
    return Because(other.what());
  }
}

}  // namespace xla_cc
