// Kernels of the AVX-512 path for processors that multiply pairs of bf16 as well (AVX512_BF16).
#pragma once

#include "kernels/cpu/kernel_table.h"

namespace tessera::kernels::avx512_bf16 {

// Attention where products may be rounded to bf16 (AttentionArgs::products) and keys and values are
// kept so.
int64_t DotAttentionWorkspaceBytes(const AttentionShape& shape, int threads);
void DotAttention(const AttentionArgs& args, ThreadPool& pool);

}  // namespace tessera::kernels::avx512_bf16
