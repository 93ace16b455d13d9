// Reading and writing one element of any floating-point tensor, for loops where clarity beats
// speed.
#pragma once

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
