#include "worker/step/seat_ledger.h"

#include <algorithm>
#include <string>

#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

int32_t RowsOf(const StepArrays& step, int64_t sequence) {
  const auto at = static_cast<size_t>(sequence);
  return step.query_starts()[at + 1] - step.query_starts()[at];
}

int32_t FirstOf(const StepArrays& step, int64_t sequence) {
  return step.context_lengths()[static_cast<size_t>(sequence)] - RowsOf(step, sequence);
}

}  // namespace

absl::Status SeatLedger::Check(const StepArrays& step, int64_t sequence, bool restored) {
  const int32_t number = step.seats()[static_cast<size_t>(sequence)];
  const auto fail = [&](const std::string& reason) {
    return absl::FailedPreconditionError(
        StrCat("step: sequence ", sequence, ", seat ", number, ": ", reason));
  };
  if (number < 0 || number >= static_cast<int64_t>(seats_.size())) {
    return fail(StrCat("there is no such seat; this worker has ", seats_.size()));
  }
  Seat& seat = seats_[static_cast<size_t>(number)];
  if (seat.step == steps_) return fail("another sequence of the step has it");
  seat.step = steps_;
  const int32_t first = FirstOf(step, sequence);
  if (first == 0 || restored) return absl::OkStatus();
  if (seat.owner != step.seat_owners()[static_cast<size_t>(sequence)]) {
    return fail("the state in it is another sequence's");
  }
  if (seat.position == first) return absl::OkStatus();
  return fail(StrCat("its state is at position ", seat.position,
                     ", the sequence's first row is at ", first));
}

absl::Status SeatLedger::Advance(const StepArrays& step, std::span<const StateCopy> restores) {
  if (seats_.empty()) return absl::OkStatus();
  ++steps_;
  for (int64_t i = 0; i < step.sequences(); ++i) {
    if (RowsOf(step, i) == 0) continue;
    const bool restored = std::any_of(restores.begin(), restores.end(),
                                      [i](const StateCopy& copy) { return copy.sequence == i; });
    if (absl::Status seat = Check(step, i, restored); !seat.ok()) return seat;
  }
  for (int64_t i = 0; i < step.sequences(); ++i) {
    if (RowsOf(step, i) == 0) continue;
    const auto at = static_cast<size_t>(i);
    Seat& seat = seats_[static_cast<size_t>(step.seats()[at])];
    seat.owner = step.seat_owners()[at];
    seat.position = step.context_lengths()[at] - step.draft_rows()[at];
  }
  return absl::OkStatus();
}

}  // namespace tessera::worker
