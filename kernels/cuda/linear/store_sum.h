// The end of a sum: its place, bias, and the output's type. For .cu files.
#pragma once

#include "kernels/cuda/linear/linear_kernels.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

// Where the row with this number stands. Those of a head are numbered one behind the other. Heads
// have no codes.
template <bool kCodes>
__device__ __forceinline__ int64_t RowPlace(const LinearParams& p, int64_t row) {
  if (kCodes || p.head_rows == 0) return row;
  const auto number = static_cast<int>(row), head = number / p.head_rows;
  return (number - head * p.head_rows) * p.experts + head;
}

// `row`: its place. Nothing where the column is beyond the matrix.
__device__ __forceinline__ void StoreSum(const LinearParams& p, int64_t row, int64_t column,
                                         float sum) {
  if (column >= p.columns) return;
  if (p.bias != nullptr) sum += p.bias[column];
  const int64_t at = row * p.out_stride + column;
  switch (p.out_dtype) {
    case DType::kBF16: static_cast<BFloat16*>(p.out)[at] = RoundTo<BFloat16>(sum); break;
    case DType::kF16: static_cast<Float16*>(p.out)[at] = RoundTo<Float16>(sum); break;
    default: static_cast<float*>(p.out)[at] = sum;
  }
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
