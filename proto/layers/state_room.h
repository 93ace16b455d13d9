// How much host memory workers give to states of sequences (v1::GatedDelta) beside the seats of
// those that run: derived here once, for workers and whoever plans for them.
//
// Thread rule: pure functions of plain values. Units: bytes.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tessera {

// For states of prompts, where no flag says how much: a tenth of the free memory, of a worker on
// CPUs at most of its --memory; 4 GiB at most.
inline int64_t UsualStateCacheBytes(int64_t free_bytes) {
  constexpr int64_t kMax = int64_t{4} << 30;
  return std::clamp<int64_t>(free_bytes / 10, 0, kMax);
}

// Places for states that are on their way between replicas, at each end, of a worker with so many
// seats. A sequence holds one from before its prompt is computed until it has a seat.
inline int64_t ExchangesOf(int64_t seats) { return std::min<int64_t>(seats, 8); }

}  // namespace tessera
