// Which attention over keys and values in 8 bits is computed on tensor cores
// (kernels/cuda/attention/code_attention.h); the plain kernel computes the rest. Pure functions;
// thread-safe.
#pragma once

#include <cstdint>

#include "kernels/ops.h"

namespace tessera::kernels::cuda {

// The arguments are not checked here.
bool TakesCodeAttention(const AttentionArgs& args, int capability);

// What it needs beside its arguments, whatever the types.
int64_t CodeAttentionWorkspaceBytes(const AttentionShape& shape);

}  // namespace tessera::kernels::cuda
