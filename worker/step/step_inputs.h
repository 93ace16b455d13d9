// Copies the host arrays of a step (worker/step/step_arrays.h) to the device tensors of StepInputs
// (worker/model/model.h): two enqueued copies, everything but the block tables in one piece, then
// these.
//
// Thread rule: one thread (the one that runs steps). `arrays` may change again only after the
// stream has passed the copies. Device memory is allocated by Create, sized by StepLimits.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "worker/model/model.h"
#include "worker/step/step_arrays.h"

namespace tessera::worker {

class StepUpload {
 public:
  static absl::StatusOr<std::unique_ptr<StepUpload>> Create(const StepLimits& limits,
                                                            kernels::Device& device);

  // Enqueues the copies of a sealed step made with the same limits; `padded`: of its padded
  // extents. Views hold until the next call.
  absl::StatusOr<StepInputs> Copy(const StepArrays& arrays, bool padded, kernels::Stream& stream);

  int64_t device_bytes() const { return memory_.size_bytes(); }

 private:
  explicit StepUpload(kernels::Buffer memory) : memory_(std::move(memory)) {}

  kernels::Buffer memory_;
};

}  // namespace tessera::worker
