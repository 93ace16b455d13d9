#include "kernels/cpu/linear/weight_rows.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/half_floats.h"

namespace tessera::kernels::cpu::linear {

void ReadRow(const TensorView& source, int64_t row, int64_t first, int64_t count, float* out) {
  if (source.dtype == DType::kF32) {
    std::memcpy(out, source.Row<float>(row) + first, count * sizeof(float));
    return;
  }
  if (source.dtype == DType::kBF16) {
    const BFloat16* in = source.Row<BFloat16>(row) + first;
    std::transform(in, in + count, out, [](BFloat16 value) { return ToFloat(value); });
  } else {
    const Float16* in = source.Row<Float16>(row) + first;
    std::transform(in, in + count, out, [](Float16 value) { return ToFloat(value); });
  }
}

float Quantise(const float* weights, int64_t count, int8_t* codes) {
  // Magnitudes order like their bits, and integers let the compiler use vectors.
  constexpr int32_t kInfinity = 0x7f800000;
  int32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto magnitude = static_cast<int32_t>(BitsFromFloat(weights[i]) & 0x7fffffffu);
    largest = magnitude > largest ? magnitude : largest;
  }
  if (largest >= kInfinity) return -1.0f;
  const float scale = FloatFromBits(static_cast<uint32_t>(largest)) / 127.0f;
  if (scale == 0.0f) {
    std::fill(codes, codes + count, int8_t{0});
    return 0.0f;
  }
  // Adding 1.5 * 2^23 leaves no bits for fractions: the addition itself rounds to nearest, and the
  // sum's low byte is the integer. The quotient passes 127 only where the scale is subnormal.
  constexpr float kNoFraction = 12582912.0f;
  for (int64_t i = 0; i < count; ++i) {
    const float quotient = weights[i] / scale;
    const float below = quotient < 127.0f ? quotient : 127.0f;
    const float within = below > -127.0f ? below : -127.0f;
    codes[i] = static_cast<int8_t>(BitsFromFloat(within + kNoFraction));
  }
  return scale;
}

absl::Status NotFinite(int64_t row, int64_t first_input) {
  return absl::InvalidArgumentError(absl::StrCat(
      "pack weights as int8: row ", row, " has a weight that is not finite at or after input ",
      first_input, "; the checkpoint is damaged, or must be loaded unquantised"));
}

bool FitsFloat16(float value) {
  const bool finite = (BitsFromFloat(value) & 0x7fffffffu) < 0x7f800000u;
  return !finite || (FromFloat<Float16>(value).bits & 0x7fffu) < 0x7c00u;
}

absl::Status BeyondFloat16(int64_t row, int64_t input, float value) {
  return absl::InvalidArgumentError(
      absl::StrCat("pack weights as float16: row ", row, ", input ", input, " is ", value,
                   ", beyond float16's 65504: use --dtype bfloat16 or float32"));
}

}  // namespace tessera::kernels::cpu::linear
