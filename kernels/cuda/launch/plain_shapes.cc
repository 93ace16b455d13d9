#include "kernels/cuda/launch/plain_shapes.h"

#include <algorithm>

namespace tessera::kernels::cuda {
namespace {

constexpr int64_t kMaxWidthOfOneWarp = 512;
constexpr int64_t kVectorsOfOneBlock = 4;
constexpr int64_t kMaxRowThreads = 256;

int64_t Ceil(int64_t value, int64_t step) { return (value + step - 1) / step; }

}  // namespace

LaunchShape NormShape(int64_t vectors, int64_t width) {
  if (width <= kMaxWidthOfOneWarp) {
    return {.blocks = {Ceil(vectors, kVectorsOfOneBlock)},
            .threads = {kWarpThreads, kVectorsOfOneBlock}};
  }
  return {.blocks = {vectors}, .threads = {kWarpThreads * kMaxNormWarps}};
}

LaunchShape RowShape(int64_t rows, int64_t elements) {
  const int64_t whole_warps = Ceil(elements, kWarpThreads) * kWarpThreads;
  return {.blocks = {rows}, .threads = {std::min(kMaxRowThreads, whole_warps)}};
}

LaunchShape MatmulShape(int64_t rows, int64_t columns) {
  return {.blocks = {Ceil(rows, kMatmulTile), Ceil(columns, kMatmulTile)},
          .threads = {kMatmulTile, kMatmulTile}};
}

}  // namespace tessera::kernels::cuda
