#include "kernels/cuda/launch/plain_shapes.h"

#include <algorithm>

namespace tessera::kernels::cuda {
namespace {

constexpr int64_t kMaxWidthOfOneWarp = 512;
constexpr int64_t kVectorsOfOneBlock = 4;
constexpr int64_t kLogitsOfThread = 16;
constexpr int64_t kMaxAttentionThreads = 128;

int64_t Ceil(int64_t value, int64_t step) { return (value + step - 1) / step; }

}  // namespace

LaunchShape NormShape(int64_t vectors, int64_t width) {
  if (width <= kMaxWidthOfOneWarp) {
    return {.blocks = {Ceil(vectors, kVectorsOfOneBlock)},
            .threads = {kWarpThreads, kVectorsOfOneBlock}};
  }
  return {.blocks = {vectors}, .threads = {kWarpThreads * kMaxNormWarps}};
}

bool HasWideNorm(int64_t width) {
  return width > kMaxWidthOfOneWarp &&
         width <= int64_t{kWarpThreads} * kMaxWideNormWarps * kWideNormFours * 4;
}

LaunchShape WideNormShape(int64_t vectors, int64_t width) {
  const int64_t warps = Ceil(width, int64_t{kWarpThreads} * 4);
  return {.blocks = {vectors},
          .threads = {kWarpThreads * std::min<int64_t>(kMaxWideNormWarps, warps)}};
}

LaunchShape RowShape(int64_t rows, int64_t elements) {
  const int64_t whole_warps = Ceil(elements, kWarpThreads) * kWarpThreads;
  return {.blocks = {rows}, .threads = {std::min<int64_t>(kMaxRowThreads, whole_warps)}};
}

LaunchShape SpreadShape(int64_t rows, int64_t elements) {
  LaunchShape shape = RowShape(rows, elements);
  shape.blocks.y = std::min(kMaxGridYZ, Ceil(elements, shape.threads.x));
  return shape;
}

LaunchShape LogitsShape(int64_t rows, int64_t width) {
  const int64_t warps = Ceil(width, kLogitsOfThread * kWarpThreads);
  return {.blocks = {rows}, .threads = {kWarpThreads * std::min<int64_t>(kMaxLogitsWarps, warps)}};
}

LaunchShape HeadsShape(int64_t rows, int64_t vectors) {
  return {.blocks = {rows, Ceil(vectors, kVectorsOfOneBlock)},
          .threads = {kWarpThreads, kVectorsOfOneBlock}};
}

LaunchShape WarpRowsShape(int64_t rows) {
  return {.blocks = {Ceil(rows, kVectorsOfOneBlock)},
          .threads = {kWarpThreads, kVectorsOfOneBlock}};
}

LaunchShape SortShape(int64_t choices, int64_t experts) {
  constexpr int64_t kMaxWarps = kMaxBlockThreads / kWarpThreads;
  const int64_t expert_bytes = experts * int64_t{sizeof(int32_t)};
  // One more has the experts' first slots.
  const int64_t with_room = kPlainSharedBytes / expert_bytes - 1;
  const int64_t wanted = std::min(Ceil(choices, kWarpThreads), kMaxWarps);
  const int64_t warps = std::max<int64_t>(1, std::min(wanted, with_room));
  return {
      .blocks = {1}, .threads = {kWarpThreads, warps}, .shared_bytes = (warps + 1) * expert_bytes};
}

LaunchShape ElementShape(int64_t elements) {
  return {.blocks = {Ceil(elements, kMaxRowThreads)}, .threads = {kMaxRowThreads}};
}

LaunchShape AttendShape(int64_t rows, int64_t heads, int64_t head_dim) {
  const int64_t whole_warps = Ceil(head_dim, kWarpThreads) * kWarpThreads;
  return {.blocks = {rows, heads},
          .threads = {std::min(kMaxAttentionThreads, whole_warps)},
          .shared_bytes = 2 * (kAttentionTile + head_dim) * int64_t{sizeof(float)}};
}

LaunchShape MatmulShape(int64_t rows, int64_t columns) {
  return {.blocks = {Ceil(rows, kMatmulTile), Ceil(columns, kMatmulTile)},
          .threads = {kMatmulTile, kMatmulTile}};
}

}  // namespace tessera::kernels::cuda
