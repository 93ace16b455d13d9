// Linear and GroupedLinear of a CUDA device: which kernels compute a call, and with what workspace.
//
// Thread-safe: holds nothing that changes but what was logged.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/device/blas_products.h"
#include "kernels/cuda/device/cuda_stream.h"
#include "kernels/cuda/device/slow_kernels.h"
#include "kernels/cuda/runtime.h"
#include "kernels/ops.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

class CudaLinear {
 public:
  // `capability` is the GPU's; 90 is 9.0. `blas` and `slow` are borrowed; null: there is no
  // cuBLASLt.
  CudaLinear(int capability, int multiprocessors, BlasProducts* blas, SlowKernels* slow)
      : capability_(capability), multiprocessors_(multiprocessors), blas_(blas), slow_(slow) {}

  // Ops::LinearInputs: what tensor cores read, where they compute such a linear.
  DType Inputs(const LinearSpec& spec, int64_t rows, DType products) const;
  // Ops::FusesSiluGate: where GEMV computes such a linear.
  bool FusesSiluGate(const LinearSpec& spec, int64_t rows, DType products) const;
  // For the rows as tensor cores take them, where the call's are others, for sums of parts of the
  // depth, and for cuBLASLt, whose plans for up to so many rows of the type `in` this makes.
  int64_t WorkspaceBytes(const LinearSpec& spec, int64_t rows, DType in) const;
  // For the rows of all experts as tensor cores take them.
  int64_t GroupedWorkspaceBytes(const LinearSpec& spec, int64_t rows) const;
  // InvalidArgument where the arguments do not fit, and nothing is enqueued.
  absl::Status Enqueue(const LinearArgs& args, CudaStream& stream) const;
  absl::Status Enqueue(const GroupedLinearArgs& args, CudaStream& stream) const;

 private:
  // A plan of cuBLASLt for what tensor cores are to multiply, or null: then they do it by our GEMM.
  BlasProducts::Plan* FindPlan(const LinearArgs& args, DType type) const;

  const int capability_;
  const int multiprocessors_;
  BlasProducts* const blas_;
  SlowKernels* const slow_;
};

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
