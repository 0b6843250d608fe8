// What random tests in C++ throw. As in Python (tests/harness/effort.py) each day has cases of its
// own: TORCH_XLA_CC_SEED=N makes those of another, TORCH_XLA_CC_HUNT=N so many times as many.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <random>
#include <string>
#include <vector>

namespace xla_cc {

inline uint64_t NumberFrom(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}

  // Of each of so many cases, times what a hunt asks for.
  static std::vector<uint64_t> Seeds(uint64_t count) {
    const uint64_t day = static_cast<uint64_t>(std::time(nullptr)) / 86'400;
    const uint64_t first = NumberFrom("TORCH_XLA_CC_SEED", day) * 1'000'000'007;
    std::vector<uint64_t> seeds(count * NumberFrom("TORCH_XLA_CC_HUNT", 1));
    for (size_t i = 0; i < seeds.size(); ++i) seeds[i] = first + i;
    return seeds;
  }

  int64_t Below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random_); }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  template <class T>
  const T& Of(const std::vector<T>& values) {
    return values[static_cast<size_t>(Below(static_cast<int64_t>(values.size())))];
  }
  template <class T>
  void Shuffle(std::vector<T>& values) {
    std::shuffle(values.begin(), values.end(), random_);
  }
  std::string Text(const std::string& letters, int64_t longest) {
    std::string text(static_cast<size_t>(Below(longest + 1)), ' ');
    for (char& c : text)
      c = letters[static_cast<size_t>(Below(static_cast<int64_t>(letters.size())))];
    return text;
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace xla_cc
