// Linear and GroupedLinear of a CUDA device: which kernels compute a call, and with what workspace.
//
// Thread-safe: holds nothing that changes.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/device/cuda_stream.h"
#include "kernels/cuda/runtime.h"
#include "kernels/ops.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

class CudaLinear {
 public:
  // Of the GPU; a capability of 90 is 9.0.
  CudaLinear(int capability, int multiprocessors)
      : capability_(capability), multiprocessors_(multiprocessors) {}

  // For the rows as tensor cores take them, where the call's are others. `rows` of all experts.
  int64_t WorkspaceBytes(const LinearSpec& spec, int64_t rows) const;
  // InvalidArgument where the arguments do not fit, and nothing is enqueued.
  absl::Status Enqueue(const LinearArgs& args, CudaStream& stream) const;
  absl::Status Enqueue(const GroupedLinearArgs& args, CudaStream& stream) const;

 private:
  const int capability_;
  const int multiprocessors_;
};

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
