// A token's key, or value, of one head as floats, whatever it is kept as.
//
// Thread rule: pure functions of the memory that they are given; nothing else may write it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/half_floats.h"
#include "kernels/kv_rows.h"
#include "kvcache/kv_layout.h"

namespace tessera::kvcache {

// The type of elements; codes have none.
template <kernels::DType type>
using KvFloat = std::conditional_t<
    type == kernels::DType::kF32, float,
    std::conditional_t<type == kernels::DType::kBF16, kernels::BFloat16, kernels::Float16>>;

// Rounded to the nearest; beyond float16 its largest number, as attention could make nothing of an
// infinity. NaN stays NaN.
template <typename T>
T RoundKv(float value) {
  if constexpr (std::is_same_v<T, kernels::Float16>) {
    constexpr float kLargest = 65504.0f;
    value = value > kLargest ? kLargest : value < -kLargest ? -kLargest : value;
  }
  return kernels::FromFloat<T>(value);
}

// `row`: kernels::KvRowBytes(type, head_dim), which may begin anywhere.
template <kernels::DType type>
void LoadRow(const std::byte* row, int64_t head_dim, float* values) {
  for (int64_t d = 0; d < head_dim; ++d) {
    if constexpr (kernels::HasKvScales(type)) {
      values[d] = kernels::KvRowValue(row, d, head_dim, type);
    } else {
      KvFloat<type> element;
      std::memcpy(&element, row + d * int64_t{sizeof element}, sizeof element);
      values[d] = kernels::ToFloat(element);
    }
  }
}

// Rounds by RoundKv.
template <kernels::DType type>
void StoreRow(const float* values, int64_t head_dim, std::byte* row) {
  if constexpr (kernels::HasKvScales(type)) {
    kernels::WriteKvRow(values, head_dim, type, row);
  } else {
    for (int64_t d = 0; d < head_dim; ++d) {
      const auto element = RoundKv<KvFloat<type>>(values[d]);
      std::memcpy(row + d * int64_t{sizeof element}, &element, sizeof element);
    }
  }
}

// Calls fn with the type of a pool as a constant.
template <typename Fn>
void WithKvType(kernels::DType type, const Fn& fn) {
  using kernels::DType;
  switch (type) {
    case DType::kF32: return fn(std::integral_constant<DType, DType::kF32>());
    case DType::kBF16: return fn(std::integral_constant<DType, DType::kBF16>());
    case DType::kF16: return fn(std::integral_constant<DType, DType::kF16>());
    case DType::kI8: return fn(std::integral_constant<DType, DType::kI8>());
    case DType::kF8: return fn(std::integral_constant<DType, DType::kF8>());
    default: return;
  }
}

}  // namespace tessera::kvcache
