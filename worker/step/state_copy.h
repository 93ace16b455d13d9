// What a step does with the states of prompts that its worker keeps in host memory
// (v1::StateCopy of proto/worker.proto).
#pragma once

#include <cstdint>

namespace tessera::worker {

struct StateCopy {
  // Stands for a place in which states are on their way between replicas (state_exchange.h).
  static constexpr int32_t Exchange(int32_t place) { return -1 - place; }
  bool of_exchange() const { return snapshot < 0; }
  int32_t exchange() const { return -1 - snapshot; }

  int32_t sequence = 0;  // index in the step
  int32_t snapshot = 0;  // place in the store, or Exchange
  uint64_t name = 0;     // of the state in that place; of an exchange, 0
  int32_t position = 0;  // tokens that it stands behind
};

}  // namespace tessera::worker
