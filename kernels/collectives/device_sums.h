// Sums over the ranks of a group, and copies of one rank's values, that their devices make among
// themselves: a call is enqueued on the rank's stream like any other op, and no host waits or moves
// a value. GroupMaker::MapSums makes them, device_sums_group.h puts them in front of a group that
// does all else.
//
// Contract: that of Group's calls of the same name. Every rank makes the same calls in the same
// order, all on one stream of its device; memory must stay valid until the call ran; it must
// outlive what is enqueued. Thread rule: one stream at a time; Abort, status and wait_time from any
// thread. Errors: what is wrong with a call's arguments is INVALID_ARGUMENT, at once. All else
// fails on the stream, wherever the host waits for it next, and ends the sums for all ranks: a rank
// that does not come in time (DEADLINE_EXCEEDED, naming it), another call (FAILED_PRECONDITION), a
// rank that ended them (ABORTED).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera::kernels {

class DeviceSums {
 public:
  // Ends the sums of the other ranks.
  virtual ~DeviceSums() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The most bytes of values that one call takes.
  virtual int64_t max_bytes() const = 0;
  // How values get from rank to rank, for logs.
  virtual std::string transport() const = 0;
  // values [...] f32, dense, on the device: becomes the sum over the ranks.
  virtual absl::Status AllReduceSum(const TensorView& values, Stream& stream) = 0;
  // values [...], dense, of a multiple of 4 bytes, on the device: becomes the root's.
  virtual absl::Status Broadcast(const TensorView& values, int root, Stream& stream) = 0;
  // Ends the sums of all ranks with `reason`, an error, within microseconds of device time.
  virtual void Abort(const absl::Status& reason) = 0;
  // OK, or the failure that ended them. Reads shared memory: cheap.
  virtual absl::Status status() const = 0;
  // How long this rank's sums have waited for the others so far.
  virtual std::chrono::nanoseconds wait_time() const = 0;
};

}  // namespace tessera::kernels
