// Copies the host arrays of a step (worker/step/step_arrays.h) to the device tensors of StepInputs
// (worker/model/model.h): two enqueued copies, everything but the block tables in one piece, then
// these.
//
// Thread rule: one thread (the one that runs steps). Where the host reads the device's memory,
// `arrays` may change again only after the stream has passed the copies; elsewhere they are copied
// to host memory that the device reads, of kSteps steps by turns: before the next Copy but one
// (kSteps = 2) the stream has passed the copies. Memory is allocated by Create, sized by
// StepLimits.
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
  static constexpr int kSteps = 2;

  static absl::StatusOr<std::unique_ptr<StepUpload>> Create(const StepLimits& limits,
                                                            kernels::Device& device);

  // Enqueues the copies of a sealed step made with the same limits; `padded`: of its padded
  // extents. Views hold until the next call.
  absl::StatusOr<StepInputs> Copy(const StepArrays& arrays, bool padded, kernels::Stream& stream);

  int64_t device_bytes() const { return memory_.size_bytes(); }

 private:
  explicit StepUpload(kernels::Buffer memory) : memory_(std::move(memory)) {}

  kernels::Buffer memory_;
  kernels::HostBuffer staging_;  // kSteps times as large, or empty
  int64_t copies_ = 0;
};

}  // namespace tessera::worker
