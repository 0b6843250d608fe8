// A hash that is the same from run to run and machine to machine: FNV-1a.
#pragma once

#include <cstdint>
#include <string>

namespace xla_cc {

inline uint64_t Hash(const std::string& bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

}  // namespace xla_cc
