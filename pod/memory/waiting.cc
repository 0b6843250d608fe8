#include "pod/memory/waiting.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace xla_cc::pod::memory {
namespace {

// So soon somebody sees that the waiting has been ended. It is no limit of the wait.
constexpr timespec kAtATime{0, 50'000'000};

// Not FUTEX_PRIVATE_FLAG: others map the word at other addresses.
void Futex(std::atomic<uint32_t>& word, int what, uint32_t value, const timespec* limit) {
  static_assert(sizeof(word) == sizeof(uint32_t));
  syscall(SYS_futex, &word, what, value, limit, nullptr, 0);
}

}  // namespace

// All of these are in one order (seq_cst): who rings either sees the sleeper, or is seen by it.
void Sleep(Bell& bell, uint32_t rung) {
  bell.sleepers.fetch_add(1);
  Futex(bell.rung, FUTEX_WAIT, rung, &kAtATime);
  bell.sleepers.fetch_sub(1);
}

void Ring(Bell& bell) {
  bell.rung.fetch_add(1);
  if (bell.sleepers.load() != 0) Futex(bell.rung, FUTEX_WAKE, INT_MAX, nullptr);
}

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace xla_cc::pod::memory
