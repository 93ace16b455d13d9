// Reading and writing elements of any floating-point tensor, for loops where clarity beats speed.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/half_floats.h"
#include "kernels/tensor.h"

namespace tessera::kernels::reference {

// Element `column` of row `row`, rows flattened to one dimension.
inline float Get(const TensorView& view, int64_t row, int64_t column) {
  switch (view.dtype) {
    case DType::kBF16: return ToFloat(view.Row<BFloat16>(row)[column]);
    case DType::kF16: return ToFloat(view.Row<Float16>(row)[column]);
    default: return view.Row<float>(row)[column];
  }
}

// What sums over a row read at a time, so that they need no heap: elements, and rows or keys beside
// each other. Each sum has its own order, whatever is summed beside it.
inline constexpr int64_t kPart = 256, kAtOnce = 4;

template <typename T>
void ReadAs(const T* in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = ToFloat(in[i]);
}

// Elements [first, first + count) of row `row`.
inline void ReadPart(const TensorView& view, int64_t row, int64_t first, int64_t count,
                     float* out) {
  switch (view.dtype) {
    case DType::kBF16: return ReadAs(view.Row<BFloat16>(row) + first, count, out);
    case DType::kF16: return ReadAs(view.Row<Float16>(row) + first, count, out);
    default: std::copy_n(view.Row<float>(row) + first, count, out);
  }
}

// Adds to each of kAtOnce sums what the elements of `one` give with those of its row of `others`.
inline void AddProducts(const float* one, const float (*others)[kPart], int64_t count,
                        double* sums) {
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < kAtOnce; ++j) sums[j] += static_cast<double>(one[i]) * others[j][i];
  }
}

// Rounds to the nearest; beyond float16 is its largest number, NaN stays NaN.
inline void Set(const TensorView& view, int64_t row, int64_t column, double value) {
  const float rounded = static_cast<float>(value);
  if (view.dtype == DType::kBF16) {
    view.Row<BFloat16>(row)[column] = FromFloat<BFloat16>(rounded);
  } else if (view.dtype == DType::kF16) {
    constexpr float kLargest = 65504.0f;
    const float within = rounded > kLargest ? kLargest : rounded < -kLargest ? -kLargest : rounded;
    view.Row<Float16>(row)[column] = FromFloat<Float16>(within);
  } else {
    view.Row<float>(row)[column] = rounded;
  }
}

}  // namespace tessera::kernels::reference
