// The ranks that hold one part of a model together: sums and copies between their tensors, enqueued
// on a stream like any other op.
//
// Sums: every element is ((rank 0 + rank 1) + rank 2) + ... in this order, whatever the algorithm
// and the number of elements, so all ranks get the same bits.
// Order: every rank enqueues the same calls with the same sizes in the same order; a rank that does
// otherwise fails the group with FAILED_PRECONDITION.
// Thread rule: one stream at a time; Abort and status from any thread. Memory must stay valid until
// the call ran. The group must outlive what is enqueued.
// Errors: what is wrong with a call's own tensors is INVALID_ARGUMENT, at once. Everything else
// fails on the stream (Stream::Synchronize) and ends the group: the first failure is final, and the
// other ranks' waits end with an error. Every wait is bounded (GroupOptions::timeout_seconds):
// DEADLINE_EXCEEDED names the rank that did not come.
#pragma once

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera::kernels {

inline constexpr int kMaxGroupSize = 16;

struct GroupOptions {
  // How long a rank waits for the others in one call.
  double timeout_seconds = 60;
  // How long a wait may spin before it sleeps, where the group's kind can spin. 0, never: where two
  // ranks share a core, the one that spins keeps the other from it.
  std::chrono::nanoseconds spin_limit{0};
};

class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // How values get from rank to rank, for logs: "shared memory".
  virtual std::string transport() const = 0;
  // Whether tensors may lie where the host does not read.
  virtual bool takes_device_memory() const { return false; }

  // values [...] f32, dense, the same shape on each rank: becomes the sum over the ranks.
  virtual absl::Status AllReduceSum(const TensorView& values, Stream& stream) = 0;
  // values [...], dense, the same bytes on each rank: becomes the root's.
  virtual absl::Status Broadcast(const TensorView& values, int root, Stream& stream) = 0;
  // out, dense, becomes the ranks' `in` one after another, in rank order. `in`, dense, may have
  // another size on each rank; out has room for exactly all of them.
  virtual absl::Status AllGather(const TensorView& in, const TensorView& out, Stream& stream) = 0;
  // The same on the root; other ranks leave `out` empty.
  virtual absl::Status Gather(const TensorView& in, const TensorView& out, int root,
                              Stream& stream) = 0;

  // Ends the group with `reason`, an error: calls that wait, on every rank, return in bounded time.
  virtual void Abort(const absl::Status& reason) = 0;
  // OK, or the failure that ended the group.
  virtual absl::Status status() const = 0;
  // How long this rank's calls have run so far: waiting for the others, moving values, adding them.
  virtual std::chrono::nanoseconds call_time() const = 0;
};

}  // namespace tessera::kernels
