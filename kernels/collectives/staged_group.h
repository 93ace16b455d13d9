// A group for a rank whose tensors lie where the host does not read: a call is a copy to host
// memory, the same call of a group over host memory, and a copy back, all enqueued on the stream.
// The other ranks need not do so, and all get the bits that they would get without it.
//
// Nothing is allocated after Create: the staging has the size of the largest call. Contract, thread
// rule and errors: group.h; a call that is too large for the staging is INVALID_ARGUMENT too.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/collectives/group.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera::kernels {

class StagedGroup final : public Group {
 public:
  // Bytes of staging that a call takes whose input and output, together, are `in` and `out`; 0
  // where it has only one of them.
  static int64_t StagingBytes(int64_t in_bytes, int64_t out_bytes);

  // Borrows `host`. ResourceExhausted: the system gives no `staging_bytes` (the largest of
  // StagingBytes) of host memory for copies from and to the device.
  static absl::StatusOr<std::unique_ptr<StagedGroup>> Create(Group* host, Device& device,
                                                             int64_t staging_bytes);

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::string transport() const override;
  bool takes_device_memory() const override { return true; }
  absl::Status AllReduceSum(const TensorView& values, Stream& stream) override;
  absl::Status Broadcast(const TensorView& values, int root, Stream& stream) override;
  absl::Status AllGather(const TensorView& in, const TensorView& out, Stream& stream) override;
  absl::Status Gather(const TensorView& in, const TensorView& out, int root,
                      Stream& stream) override;
  void Abort(const absl::Status& reason) override { host_->Abort(reason); }
  absl::Status status() const override { return host_->status(); }
  // Time of the calls of the group over host memory; copies are the rank's own work.
  std::chrono::nanoseconds call_time() const override { return host_->call_time(); }

 private:
  StagedGroup(Group* host, HostBuffer staging) : host_(host), staging_(std::move(staging)) {}
  // Sets where the staging holds what stands for `in` and `out`; InvalidArgument: it is too small.
  absl::Status Stage(const char* call, const TensorView& in, const TensorView& out,
                     TensorView* staged_in, TensorView* staged_out) const;
  absl::Status EnqueueGather(const char* call, const TensorView& in, const TensorView& out,
                             int root, Stream& stream);

  Group* const host_;
  const HostBuffer staging_;
};

}  // namespace tessera::kernels
