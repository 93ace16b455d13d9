#include "kernels/cpu/linear/weight_rows.h"

#include <algorithm>
#include <cmath>
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
  float largest = 0.0f;
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    finite &= std::abs(weights[i]) <= 3.4028234e38f;
    largest = std::max(largest, std::abs(weights[i]));
  }
  if (!finite) return -1.0f;
  const float scale = largest / 127.0f;
  if (scale == 0.0f) {
    std::fill(codes, codes + count, int8_t{0});
    return 0.0f;
  }
  // Adding 1.5 * 2^23 leaves no bits for fractions: the sum is rounded to nearest by the addition
  // itself.
  constexpr float kNoFraction = 12582912.0f;
  for (int64_t i = 0; i < count; ++i) {
    const float rounded = (weights[i] / scale + kNoFraction) - kNoFraction;
    codes[i] = static_cast<int8_t>(std::clamp(rounded, -127.0f, 127.0f));
  }
  return scale;
}

absl::Status NotFinite(int64_t row, int64_t first_input) {
  return absl::InvalidArgumentError(absl::StrCat(
      "pack weights as int8: row ", row, " has a weight that is not finite at or after input ",
      first_input, "; the checkpoint is damaged, or must be loaded unquantised"));
}

}  // namespace tessera::kernels::cpu::linear
