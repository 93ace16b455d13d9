// Attention over AMX tiles with its tile instructions emulated (attention_emulated_tiles.cc). Runs
// where AVX512_BF16 and AVX512_VBMI are.
#pragma once

#include "kernels/cpu/kernel_table.h"

namespace tessera::kernels::emulated {

int64_t TileAttentionWorkspaceBytes(const AttentionShape& shape, int threads);
void TileAttention(const AttentionArgs& args, ThreadPool& pool);

}  // namespace tessera::kernels::emulated
