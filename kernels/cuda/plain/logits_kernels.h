// The plain kernels at the end of a step, see plain_kernels.h for what holds for all of them.
#pragma once

#include <cstdint>

#include "kernels/cuda/runtime.h"

namespace tessera::kernels::cuda {

// LogSoftmax of ops.h.
struct LogSoftmaxParams {
  float* out = nullptr;       // [rows, width]; may equal `in`
  const float* in = nullptr;  // [rows, width]
  int64_t rows = 0, width = 0, out_stride = 0, in_stride = 0;
};

// TopK of ops.h.
struct TopKParams {
  float* values = nullptr;     // [rows, k]
  int32_t* indices = nullptr;  // [rows, k]
  const float* in = nullptr;   // [rows, width]
  int64_t rows = 0, width = 0, k = 0;
  int64_t values_stride = 0, indices_stride = 0, in_stride = 0;
};

// Sample of ops.h, whose SampleArgs says what each is. Logits stand `stride` apart.
struct SampleParams {
  int32_t* token_ids = nullptr;
  float* logits = nullptr;
  const float *temperature = nullptr, *top_p = nullptr, *min_p = nullptr;
  const int32_t* top_k = nullptr;
  const float *repetition = nullptr, *presence = nullptr, *frequency = nullptr;
  const uint64_t* seeds = nullptr;
  const int32_t *choices = nullptr, *positions = nullptr;
  const int32_t *history_offsets = nullptr, *history_ids = nullptr, *history_counts = nullptr;
  const int32_t *bias_offsets = nullptr, *bias_ids = nullptr;
  const float* bias_values = nullptr;
  const int32_t *masks = nullptr, *mask_rows = nullptr;  // null: none
  int64_t mask_count = 0, mask_stride = 0;
  int64_t rows = 0, vocabulary = 0, stride = 0;
};

namespace TESSERA_CUDA_PLATFORM {

cudaError_t LaunchLogSoftmax(const LogSoftmaxParams& params, cudaStream_t stream);
cudaError_t LaunchTopK(const TopKParams& params, cudaStream_t stream);
cudaError_t LaunchSample(const SampleParams& params, cudaStream_t stream);

}  // namespace TESSERA_CUDA_PLATFORM
}  // namespace tessera::kernels::cuda
