// What a step does with the states of prompts that its worker keeps in host memory
// (v1::StateCopy of proto/worker.proto).
#pragma once

#include <cstdint>

namespace tessera::worker {

struct StateCopy {
  // A seat that another replica's worker has filled, as a snapshot to restore from.
  static constexpr int32_t kInSeat = -1;

  int32_t sequence = 0;  // index in the step
  int32_t snapshot = 0;  // place in the store, or, of restores, kInSeat
  uint64_t name = 0;     // of the state in that place
  int32_t position = 0;  // tokens that it stands behind
};

}  // namespace tessera::worker
