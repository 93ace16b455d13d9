// Which kernels compute attention on a CUDA device. Pure functions; thread-safe.
#pragma once

#include <cstdint>

#include "kernels/ops.h"

namespace tessera::kernels::cuda {

// Kernels of kernels/cuda/attention, or the plain one of kernels/cuda/plain and what keeps the
// others from it.
enum class AttentionChoice : uint8_t {
  kTensorCores,
  // Keys and values are neither bf16 (from capability 80 on) nor f16 (from 75), `products` are not
  // of that type, or queries neither of it nor of f32.
  kPlainType,
  // A head size without HasTensorAttention() and HasWideAttention().
  kPlainHead,
  // Memory that may not be read in pieces of 16 bytes (keys, values) or two elements (queries,
  // outputs).
  kPlainAlignment,
};
// The arguments are not checked here.
AttentionChoice ChooseAttention(const AttentionArgs& args, int capability);

// What the kernels of kernels/cuda/attention need beside their arguments, whatever the types.
int64_t TensorAttentionWorkspaceBytes(const AttentionShape& shape);

}  // namespace tessera::kernels::cuda
