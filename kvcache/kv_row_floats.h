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
template <KvType type>
using KvFloat = std::conditional_t<
    type == KvType::kFloat32, float,
    std::conditional_t<type == KvType::kBFloat16, kernels::BFloat16, kernels::Float16>>;

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

// `row`: RowBytes(type, head_dim), which may begin anywhere.
template <KvType type>
void LoadRow(const std::byte* row, int64_t head_dim, float* values) {
  constexpr kernels::DType kType = ToDType(type);
  for (int64_t d = 0; d < head_dim; ++d) {
    if constexpr (kernels::HasKvScales(kType)) {
      values[d] = kernels::KvRowValue(row, d, head_dim, kType);
    } else {
      KvFloat<type> element;
      std::memcpy(&element, row + d * int64_t{sizeof element}, sizeof element);
      values[d] = kernels::ToFloat(element);
    }
  }
}

// Rounds by RoundKv.
template <KvType type>
void StoreRow(const float* values, int64_t head_dim, std::byte* row) {
  constexpr kernels::DType kType = ToDType(type);
  if constexpr (kernels::HasKvScales(kType)) {
    kernels::WriteKvRow(values, head_dim, kType, row);
  } else {
    for (int64_t d = 0; d < head_dim; ++d) {
      const auto element = RoundKv<KvFloat<type>>(values[d]);
      std::memcpy(row + d * int64_t{sizeof element}, &element, sizeof element);
    }
  }
}

// Calls fn with the type as a constant.
template <typename Fn>
void WithKvType(KvType type, const Fn& fn) {
  switch (type) {
    case KvType::kFloat32: return fn(std::integral_constant<KvType, KvType::kFloat32>());
    case KvType::kBFloat16: return fn(std::integral_constant<KvType, KvType::kBFloat16>());
    case KvType::kFloat16: return fn(std::integral_constant<KvType, KvType::kFloat16>());
    case KvType::kInt8: return fn(std::integral_constant<KvType, KvType::kInt8>());
    case KvType::kFloat8: return fn(std::integral_constant<KvType, KvType::kFloat8>());
  }
}

}  // namespace tessera::kvcache
