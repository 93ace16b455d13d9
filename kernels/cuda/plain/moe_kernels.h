// The plain kernels of mixtures of experts, see plain_kernels.h for what holds for all of them.
#pragma once

#include <cstdint>

#include "kernels/cuda/runtime.h"
#include "kernels/dtype.h"

namespace tessera::kernels::cuda {

// ExpertBias of ops.h.
struct ExpertBiasParams {
  void* out = nullptr;                      // [slots, width], in place
  const float* biases = nullptr;            // [experts, width]
  const int32_t* expert_offsets = nullptr;  // [experts + 1]
  int64_t slots = 0, width = 0, experts = 0;
  int64_t out_stride = 0, biases_stride = 0;
  DType dtype = DType::kF32;
};

// MoeScores of ops.h.
struct MoeScoresParams {
  float* scores = nullptr;  // [rows, experts], in place
  int64_t rows = 0, experts = 0, stride = 0;
  bool softmax = true;        // else sigmoid
  bool sparse_mixer = false;  // instead of both
  float jitter = 0;
};

// MoeRoute of ops.h.
struct MoeRouteParams {
  const float* logits = nullptr;      // [rows, experts]
  float* weights = nullptr;           // [rows, k]
  int32_t* slots = nullptr;           // [rows, k]
  int32_t* source_rows = nullptr;     // [rows * k]
  int32_t* expert_offsets = nullptr;  // [experts + 1]
  int64_t rows = 0, experts = 0, k = 0;
  int64_t logits_stride = 0, weights_stride = 0;
  bool renormalise = false;
  bool scored = false;
  const float* choice_bias = nullptr;  // [experts] or null
  int64_t groups = 1, groups_per_row = 1;
  bool groups_by_best = false;
  float factor = 1;
  const float* expert_scales = nullptr;  // [experts] or null
};

// MoeCombine of ops.h.
struct MoeCombineParams {
  void* out = nullptr;             // [rows, width]
  const void* in = nullptr;        // [slots, width]
  const float* weights = nullptr;  // [rows, k]
  const int32_t* slots = nullptr;  // [rows, k]
  const int32_t* held = nullptr;   // [held_count] or null: slots outside of its ends do not count
  const void* shared = nullptr;    // [rows, width] or null
  const float* shared_gate = nullptr;  // [rows] or null
  int64_t rows = 0, width = 0, k = 0, held_count = 0;
  int64_t out_stride = 0, in_stride = 0, weights_stride = 0, slots_stride = 0;
  int64_t shared_stride = 0;
  DType dtype = DType::kF32;
};

namespace TESSERA_CUDA_PLATFORM {

cudaError_t LaunchExpertBias(const ExpertBiasParams& params, cudaStream_t stream);
cudaError_t LaunchMoeScores(const MoeScoresParams& params, cudaStream_t stream);
cudaError_t LaunchMoeRoute(const MoeRouteParams& params, cudaStream_t stream);
cudaError_t LaunchMoeCombine(const MoeCombineParams& params, cudaStream_t stream);

}  // namespace TESSERA_CUDA_PLATFORM
}  // namespace tessera::kernels::cuda
