// Linear, GroupedLinear and HeadLinear of a CUDA device: which kernels compute a call, and with
// what workspace.
//
// Thread-safe: holds nothing that changes but what was logged, and what was measured.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/device/blas_products.h"
#include "kernels/cuda/device/cuda_stream.h"
#include "kernels/cuda/device/gemm_tuning.h"
#include "kernels/cuda/device/slow_kernels.h"
#include "kernels/cuda/linear/linear_kernels.h"
#include "kernels/cuda/runtime.h"
#include "kernels/ops.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

class CudaLinear {
 public:
  struct Gpu {
    int capability = 75, multiprocessors = 1;  // 90 is 9.0
    int64_t widened_bytes = 0;                 // as in CudaDeviceOptions
  };
  // All are borrowed; `blas` null: there is no cuBLASLt.
  CudaLinear(const Gpu& gpu, BlasProducts* blas, SlowKernels* slow, GemmTuning* tuning)
      : capability_(gpu.capability),
        multiprocessors_(gpu.multiprocessors),
        widened_bytes_(gpu.widened_bytes),
        blas_(blas),
        slow_(slow),
        tuning_(tuning) {}

  // Ops::LinearInputs: what tensor cores read, where they compute such a linear.
  DType Inputs(const LinearSpec& spec, int64_t rows, DType products) const;
  // Ops::FusesSiluGate: where GEMV computes such a linear.
  bool FusesSiluGate(const LinearSpec& spec, int64_t rows, DType products) const;
  // For the rows as tensor cores take them, where the call's are others, for sums of parts of the
  // depth, and for cuBLASLt, whose plans for up to so many rows of the type `in` this makes. Also
  // measures which way of our GEMM is fastest.
  int64_t WorkspaceBytes(const LinearSpec& spec, int64_t rows, DType in) const;
  // For the rows of all experts as tensor cores take them.
  int64_t GroupedWorkspaceBytes(const LinearSpec& spec, int64_t rows) const;
  // InvalidArgument where the arguments do not fit, and nothing is enqueued.
  absl::Status Enqueue(const LinearArgs& args, CudaStream& stream) const;
  absl::Status Enqueue(const GroupedLinearArgs& args, CudaStream& stream) const;
  // Where TakesHeads: the matrices are 16-bit weights, alike and equally far apart, a fast kernel
  // has them, and the workspace has room for the rows as that reads them. The op's check may still
  // refuse it.
  bool TakesHeads(const HeadLinearArgs& args) const;
  absl::Status Enqueue(const HeadLinearArgs& args, CudaStream& stream) const;

 private:
  // A plan of cuBLASLt for what tensor cores are to multiply, or null: then they do it by our GEMM.
  BlasProducts::Plan* FindPlan(const LinearArgs& args, DType type) const;

  // Where our GEMM has such products, of up to so many rows.
  void PrepareGemm(const LinearSpec& spec, int64_t rows) const;
  // Makes cuBLASLt's plans for codes that become 16-bit weights, for up to so many rows of `in`.
  // Returns what the weights and the library take of a workspace; 0: codes stay codes.
  int64_t PrepareWidened(const LinearSpec& spec, int64_t rows, DType in) const;
  // The same of a call whose products are `type`; 0 also where a plan is not there.
  int64_t WidenedBytes(const LinearArgs& args, DType type) const;
  // Where WidenedBytes are there. `own`: the same call for our GEMM.
  void EnqueueWidened(const LinearArgs& args, const LinearParams& own, std::byte* workspace,
                      CudaStream& stream) const;

  const int capability_;
  const int multiprocessors_;
  const int64_t widened_bytes_;
  BlasProducts* const blas_;
  SlowKernels* const slow_;
  GemmTuning* const tuning_;
};

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
