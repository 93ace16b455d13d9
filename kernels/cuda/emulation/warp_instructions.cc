#include "kernels/cuda/emulation/warp_instructions.h"

#include <cstring>

namespace tessera::kernels::cuda::emulated {
namespace {

constexpr int kRows = 16;
constexpr int kColumns = 8;
constexpr int kMaxDepth = 16;

uint16_t Half(uint32_t pair, int index) { return static_cast<uint16_t>(pair >> 16 * index); }

}  // namespace

void ExecuteMma(Block&, const LaneArguments& lanes) {
  float a[kRows][kMaxDepth], b[kMaxDepth][kColumns], c[kRows][kColumns];
  const int depth = static_cast<const MmaOperands*>(lanes[0])->depth;
  for (int lane = 0; lane < kWarpThreads; ++lane) {
    const auto& operands = *static_cast<const MmaOperands*>(lanes[lane]);
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int r = 0; r < depth / 4; ++r) {
      for (int half = 0; half < 2; ++half) {
        const int row = group + r % 2 * 8, k = pair + r / 2 * 8 + half;
        a[row][k] = operands.to_float(Half(operands.a[r], half));
      }
    }
    for (int r = 0; r < depth / 8; ++r) {
      for (int half = 0; half < 2; ++half) {
        b[pair + r * 8 + half][group] = operands.to_float(Half(operands.b[r], half));
      }
    }
    for (int i = 0; i < 4; ++i) c[group + i / 2 * 8][pair + i % 2] = operands.c[i];
  }
  for (int row = 0; row < kRows; ++row) {
    for (int k = 0; k < depth; ++k) {
      for (int column = 0; column < kColumns; ++column) c[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int lane = 0; lane < kWarpThreads; ++lane) {
    float* out = static_cast<const MmaOperands*>(lanes[lane])->c;
    for (int i = 0; i < 4; ++i) out[i] = c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
  }
}

void ExecuteMatrixLoad(Block& block, const LaneArguments& lanes) {
  constexpr int kMatrices = 4, kSize = 8, kRowBytes = 16;
  for (int matrix = 0; matrix < kMatrices; ++matrix) {
    uint16_t elements[kSize][kSize];
    for (int i = 0; i < kSize; ++i) {
      const auto& load = *static_cast<const MatrixLoad*>(lanes[matrix * kSize + i]);
      if (reinterpret_cast<uintptr_t>(load.row) % kRowBytes != 0) {
        block.Fail(load.site, "the address of a row is not a multiple of 16 bytes");
      }
      if (!block.shared().Contains(load.row, kRowBytes)) {
        block.Fail(load.site, "a row is not in the block's shared memory");
      }
      std::memcpy(elements[i], load.row, kRowBytes);
    }
    for (int lane = 0; lane < kWarpThreads; ++lane) {
      const auto& load = *static_cast<const MatrixLoad*>(lanes[lane]);
      const int row = lane / 4, column = lane % 4 * 2;
      const uint16_t low = load.transposed ? elements[column][row] : elements[row][column];
      const uint16_t high = load.transposed ? elements[column + 1][row] : elements[row][column + 1];
      load.r[matrix] = low | static_cast<uint32_t>(high) << 16;
    }
  }
}

}  // namespace tessera::kernels::cuda::emulated
