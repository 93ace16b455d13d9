// Random numbers that are the same on every machine: splitmix64 (Steele, Lea, Flood, 2014).
//
// Thread rule: one thread at a time. The standard distributions differ between libraries, so a plan
// would not be the same bytes everywhere.
#pragma once

#include <cstdint>

namespace tessera::scheduler {

class SeededRandom {
 public:
  explicit SeededRandom(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // In [0, n); n > 0. The bias of the modulus is below n / 2^64.
  int Below(int n) { return static_cast<int>(Next() % static_cast<uint64_t>(n)); }
  // In [0, 1).
  double Unit() { return static_cast<double>(Next() >> 11) / 9007199254740992.0; }

 private:
  uint64_t state_;
};

}  // namespace tessera::scheduler
