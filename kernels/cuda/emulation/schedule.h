// In which order the threads of an emulated launch run, and when their asynchronous copies land.
//
// A GPU promises no order between two barriers; so a right kernel gives the same bits under every
// schedule, and a kernel that lacks a barrier or a wait gives another result, or poison, under one
// of them. Values; thread-safe.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::kernels::cuda::emulated {

enum class Order : uint8_t { kAscending, kDescending, kRandom };

// When the bytes of a cp.async are there: as early or as late as the rules allow.
enum class CopyLanding : uint8_t { kAtIssue, kAtWait, kRandom };

struct Schedule {
  // Among the lanes of a warp that can go on; among the warps, of which the first one in this order
  // runs as far as it can; and the order of the blocks, which run one after another.
  Order lanes = Order::kAscending;
  Order warps = Order::kAscending;
  Order blocks = Order::kAscending;
  CopyLanding copies = CopyLanding::kAtWait;
  // Seed of the random numbers.
  uint64_t seed = 1;
};

// Seeds 0 to 3 are the extremes: everything ascending or descending, lanes against warps, copies
// early or late. From 4 on all is drawn from the seed.
Schedule ScheduleFromSeed(uint64_t seed);

// "lanes ascending, warps random, blocks descending, copies land at their wait, seed 7"
std::string Describe(const Schedule& schedule);

// Marsaglia's xorshift64*: fast, and the same everywhere.
class ScheduleRandom {
 public:
  explicit ScheduleRandom(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u | 1) {}

  uint32_t Below(uint32_t limit) {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    const auto bits = static_cast<uint32_t>((state_ * 0x2545f4914f6cdd1du) >> 32);
    return static_cast<uint32_t>((uint64_t{bits} * limit) >> 32);
  }

 private:
  uint64_t state_;
};

}  // namespace tessera::kernels::cuda::emulated
