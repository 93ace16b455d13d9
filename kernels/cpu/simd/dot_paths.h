// Attention of the AVX-512 path for processors that multiply pairs of bf16 as well: where products
// may be rounded to bf16 (AttentionArgs::products) and keys and values are kept so.
#pragma once

#include "kernels/cpu/kernel_table.h"

namespace tessera::kernels {

namespace avx512_bf16 {
int64_t DotAttentionWorkspaceBytes(const AttentionShape& shape, int threads);
void DotAttention(const AttentionArgs& args, ThreadPool& pool);
}  // namespace avx512_bf16

namespace amx {  // and AMX
int64_t TileAttentionWorkspaceBytes(const AttentionShape& shape, int threads);
void TileAttention(const AttentionArgs& args, ThreadPool& pool);
}  // namespace amx

}  // namespace tessera::kernels
