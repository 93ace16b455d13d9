// Element types that weights, activations and KV caches are stored in.
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera::kernels {

// kI4 is of weights only, two to a byte: rows of them are tensors of bytes (kernels/int4_rows.h).
// kF8 is e4m3: rows of bytes with scales, of weights (kernels/byte_rows.h) and of KV
// (kernels/kv_rows.h).
enum class DType : uint8_t { kF32, kF16, kBF16, kF8, kI4, kI8, kI32, kU64 };

// 0 for kI4.
constexpr int64_t SizeInBytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kF16:
    case DType::kBF16: return 2;
    case DType::kI4: return 0;
    case DType::kF8:
    case DType::kI8: return 1;
    case DType::kU64: return 8;
  }
  return 0;
}

constexpr std::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "float32";
    case DType::kF16: return "float16";
    case DType::kBF16: return "bfloat16";
    case DType::kF8: return "float8";
    case DType::kI4: return "int4";
    case DType::kI8: return "int8";
    case DType::kI32: return "int32";
    case DType::kU64: return "uint64";
  }
  return "unknown";
}

}  // namespace tessera::kernels
