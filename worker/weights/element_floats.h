// Plain elements as floats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/dtype.h"
#include "kernels/half_floats.h"

namespace tessera::worker {

// The element at `data`, of kF32, kF16 or kBF16. Exact.
inline float FloatAt(kernels::DType dtype, const std::byte* data) {
  uint32_t bits = 0;
  std::memcpy(&bits, data, static_cast<size_t>(kernels::SizeInBytes(dtype)));
  if (dtype == kernels::DType::kF32) return kernels::FloatFromBits(bits);
  const auto half = static_cast<uint16_t>(bits);
  return dtype == kernels::DType::kBF16 ? kernels::ToFloat(kernels::BFloat16{half})
                                        : kernels::ToFloat(kernels::Float16{half});
}

}  // namespace tessera::worker
