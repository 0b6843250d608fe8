#include "torch_xla_cc/threads/failure.h"

#include "torch_xla_cc/errors.h"

namespace xla_cc {

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
      throw CollectiveMismatch(Text());
    case Kind::kTimeout:
      throw CollectiveTimeout(Text());
    default:
      throw RanksDisagree(Text());
  }
}

Failure FailureOf(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CollectiveMismatch& mismatch) {
    return Because(mismatch.what(), Failure::Kind::kMismatch);
  } catch (const CollectiveTimeout& timeout) {
    return Because(timeout.what(), Failure::Kind::kTimeout);
  } catch (const std::exception& other) {
    return Because(other.what());
  }
}

}  // namespace xla_cc
