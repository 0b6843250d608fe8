// Waiting for another process, in memory that both have: without using the processor.
#pragma once

#include <atomic>
#include <cstdint>

namespace xla_cc::pod::memory {

// Whoever changes what others may wait for rings; whoever waits looks, and sleeps until then.
struct alignas(64) Bell {
  std::atomic<uint32_t> rung;
  std::atomic<uint32_t> sleepers;  // one that was killed is counted for ever, which costs a call
};

// Of the kernel: sleeps while the bell has been rung so often, and not for long.
void Sleep(Bell& bell, uint32_t rung);
void Ring(Bell& bell);
// Lets whoever has the other half of a core go on.
void Pause();

// Waits until `is_so()`, and returns true; false if `ended` first.
template <typename Is>
bool Wait(Bell& bell, const std::atomic<bool>& ended, const Is& is_so) {
  constexpr int kLooks = 100;  // some microseconds: what is almost there
  for (int look = 0; look < kLooks; ++look) {
    if (is_so()) return true;
    Pause();
  }
  for (;;) {
    const uint32_t rung = bell.rung.load();
    if (is_so()) return true;
    if (ended.load()) return false;
    Sleep(bell, rung);
  }
}

}  // namespace xla_cc::pod::memory
