// Where each seat of a worker stands: whose state is in it, and behind which position. A step that
// says something else is refused before it computes, because a state that is read or moved on by a
// wrong row gives wrong tokens without any other sign.
//
// Thread rule: one thread (the one that runs steps).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "worker/step/state_copy.h"
#include "worker/step/step_arrays.h"

namespace tessera::worker {

class SeatLedger {
 public:
  explicit SeatLedger(int64_t seats) : seats_(static_cast<size_t>(seats)) {}

  // Notes where the step leaves its seats: before the rows of drafts. FailedPrecondition, naming
  // the seat, with nothing noted, where a sequence has none, one that is not there, one that
  // another sequence of the step has, or, unless it begins at position 0, one that stands elsewhere
  // or belongs to another sequence. A ledger without seats accepts all. `restores`: sequences whose
  // seats have their states from elsewhere, of the right position (worker/step/state_store.h).
  absl::Status Advance(const StepArrays& step, std::span<const StateCopy> restores = {});

 private:
  struct Seat {
    uint64_t owner = 0;
    int32_t position = -1;  // of the next row; -1: nobody's
    uint64_t step = 0;      // that named it last
  };

  absl::Status Check(const StepArrays& step, int64_t sequence, bool restored);

  std::vector<Seat> seats_;
  uint64_t steps_ = 0;
};

}  // namespace tessera::worker
