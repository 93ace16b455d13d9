#include "tests/kernels/attention_emulated_tiles.h"

#include "kernels/cpu/simd/attention_tiles.h"
#include "tests/kernels/emulated_tiles.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {

int64_t TileAttentionWorkspaceBytes(const AttentionShape& shape, int threads) {
  return WorkspaceBytesWith<TileMath<cpu::EmulatedTiles>>(shape, threads);
}

void TileAttention(const AttentionArgs& args, ThreadPool& pool) {
  AttendPaired<TileMath<cpu::EmulatedTiles>>(args, pool);
}

}  // namespace tessera::kernels::TESSERA_SIMD_PATH
