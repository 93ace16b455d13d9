// A group whose ranks share memory: threads of one process, or processes that map the same file.
//
// Each rank owns two slots. A call is a few steps; in each step a rank writes its slot, publishes
// its step number, waits until every rank has published the same, and reads the others' slots. The
// slots of consecutive steps differ, so one wait a step is enough: who publishes step s + 1 has
// read everything of step s, and only then anybody can write its slot of step s + 2.
//
// Small sums are one step, in which every rank adds everything. Larger ones are two steps for each
// slot of values: every rank adds its slice, then all slices are copied.
// Waits spin for GroupOptions::spin_limit, then sleep on the step number (futex).
// Contract, thread rule and errors: group.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kernels/collectives/host_group.h"
#include "kernels/links/deadline.h"

namespace tessera::kernels {

struct SlotGroupOptions {
  GroupOptions group = {};
  // Bytes of values in one slot, a multiple of 64. All ranks use the same.
  int64_t slot_bytes = 256 << 10;
};

class SlotGroup final : public HostGroup {
 public:
  // InvalidArgument: slot_bytes is not a multiple of 64, or 0.
  static absl::Status CheckOptions(const SlotGroupOptions& options);
  // Bytes of memory that a group of `size` ranks shares.
  static int64_t MemoryBytes(int size, int64_t slot_bytes);

  // The options passed CheckOptions. `memory` is MemoryBytes, zero before the first rank starts,
  // 64-byte aligned, and the same on every rank. `check_peers` says, while this rank waits, whether
  // a peer is known to be gone.
  SlotGroup(int rank, int size, std::shared_ptr<std::byte> memory, const SlotGroupOptions& options,
            std::function<absl::Status()> check_peers);
  // Ends the group for the others too; calls that are complete stay so.
  ~SlotGroup() override;
  std::string transport() const override { return "shared memory"; }

 private:
  struct Control;
  struct Slot;

  absl::Status SumNow(absl::Span<float> values) override;
  absl::Status BroadcastNow(absl::Span<std::byte> bytes, int root) override;
  absl::Status GatherNow(absl::Span<const std::byte> in, absl::Span<std::byte> out,
                         int root) override;
  void WakeAll(const absl::Status& reason) override;

  absl::Status SumInOneStep(absl::Span<float> values);
  absl::Status SumBySlices(absl::Span<float> values, int64_t all_bytes);
  Control& control() const;
  // What `rank` writes, or wrote, in the step that this rank is in.
  Slot& SlotOf(int rank) const;
  // Writes this rank's slot, then waits for the others' slots of the same step.
  absl::Status Step(uint32_t kind, int64_t all_bytes, absl::Span<const std::byte> bytes);
  // After a step whose calls must be of one size: whether they were.
  absl::Status CheckSameSize(int64_t all_bytes) const;
  absl::Status WaitFor(int rank, Deadline deadline);
  absl::Status Aborted() const;

  const std::shared_ptr<std::byte> memory_;
  const SlotGroupOptions options_;
  const std::function<absl::Status()> check_peers_;
  uint32_t step_ = 0;
};

}  // namespace tessera::kernels
