#include "kernels/cuda/launch/plain_shapes.h"

#include <algorithm>

namespace tessera::kernels::cuda {
namespace {

constexpr int64_t kMaxWidthOfOneWarp = 512;
constexpr int64_t kVectorsOfOneBlock = 4;
constexpr int64_t kMaxRowThreads = 256;

int64_t Ceil(int64_t value, int64_t step) { return (value + step - 1) / step; }

// A thread per element, up to kMaxRowThreads, in whole warps.
int64_t RowThreads(int64_t elements) {
  return std::min(kMaxRowThreads, Ceil(elements, kWarpThreads) * kWarpThreads);
}

}  // namespace

LaunchShape NormShape(int64_t vectors, int64_t width) {
  if (width <= kMaxWidthOfOneWarp) {
    return {.blocks = {Ceil(vectors, kVectorsOfOneBlock)},
            .threads = {kWarpThreads, kVectorsOfOneBlock}};
  }
  return {.blocks = {vectors}, .threads = {kWarpThreads * kMaxNormWarps}};
}

LaunchShape EmbeddingShape(int64_t tokens, int64_t hidden) {
  return {.blocks = {tokens}, .threads = {RowThreads(hidden)}};
}

LaunchShape RopeShape(int64_t tokens, int64_t pairs) {
  return {.blocks = {tokens}, .threads = {RowThreads(pairs)}};
}

LaunchShape MatmulShape(int64_t rows, int64_t columns) {
  return {.blocks = {Ceil(rows, kMatmulTile), Ceil(columns, kMatmulTile)},
          .threads = {kMatmulTile, kMatmulTile}};
}

}  // namespace tessera::kernels::cuda
