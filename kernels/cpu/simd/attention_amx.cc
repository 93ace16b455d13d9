// Attention over a bf16 cache with AMX. Compiled with -mavx512{f,bw,dq,vl,bf16,vbmi}.
#include "kernels/cpu/simd/attention_tiles.h"
#include "kernels/cpu/simd/dot_paths.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {

int64_t TileAttentionWorkspaceBytes(const AttentionShape& shape, int threads) {
  return WorkspaceBytesWith<TileMath<cpu::AmxTiles>>(shape, threads);
}

void TileAttention(const AttentionArgs& args, ThreadPool& pool) {
  AttendPaired<TileMath<cpu::AmxTiles>>(args, pool);
}

}  // namespace tessera::kernels::TESSERA_SIMD_PATH
