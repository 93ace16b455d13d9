// Which kernels compute attention on a CUDA device. Pure functions; thread-safe.
#pragma once

#include <cstdint>

#include "kernels/ops.h"

namespace tessera::kernels::cuda {

// Whether kernels/cuda/attention takes it: keys and values of bf16 (from `capability` 80 on) or f16
// (from 75), `products` of that type, queries of it or of f32, no soft cap, one chunk of keys at
// most, a head size that HasTensorAttention(), and memory that may be read in pieces of 16 bytes
// (keys, values) or two elements (queries, outputs). Otherwise kernels/cuda/plain does. The
// arguments are not checked here.
bool IsTensorAttention(const AttentionArgs& args, int capability);

// What the former needs beside its arguments, whatever the types.
int64_t TensorAttentionWorkspaceBytes(const AttentionShape& shape);

}  // namespace tessera::kernels::cuda
