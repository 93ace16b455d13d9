#include "worker/weights/eight_bit_rows.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kernels/byte_rows.h"
#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

using Values = std::array<float, 256>;  // by code

// 4 bits of exponent, bias 7, 3 of mantissa; no infinities, and two codes that are no numbers.
// Source: Micikevicius et al., "FP8 formats for deep learning" (2022), table 1.
Values ValuesOfE4m3() {
  Values values;
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    if (exponent == 15 && mantissa == 7) value = std::numeric_limits<float>::quiet_NaN();
    values[static_cast<size_t>(code)] = code < 128 ? value : -value;
  }
  return values;
}

Values ValuesOfInt8() {
  Values values;
  for (int code = 0; code < 256; ++code) {
    values[static_cast<size_t>(code)] = static_cast<float>(code < 128 ? code : code - 256);
  }
  return values;
}

class EightBitRows : public RowSource {
 public:
  EightBitRows(const Checkpoint& checkpoint, const StoredMatrix& matrix, std::vector<float> scales,
               std::vector<float> zeros)
      : matrix_(matrix),
        codes_(checkpoint.Get(matrix.codes)),
        values_(codes_.entry->dtype == "I8" ? ValuesOfInt8() : ValuesOfE4m3()),
        scales_(std::move(scales)),
        zeros_(std::move(zeros)),
        row_scales_((matrix.columns + matrix.scaled_columns - 1) / matrix.scaled_columns) {}

  std::string Describe() const override { return codes_.Describe(); }
  absl::StatusOr<RowForm> FormOf(const IndexRange& columns) const override {
    if (!matrix_.keeps_codes) return RowForm{};
    const bool cut = matrix_.scaled_columns < matrix_.columns;
    const int64_t group =
        cut ? std::gcd(std::gcd(matrix_.scaled_columns, kMaxGroup), columns.begin) : kMaxGroup;
    if (group < kMinGroup) return RowForm{};
    return RowForm{.dtype = kernels::DType::kF8, .group_size = group};
  }
  int64_t code_bits() const override { return matrix_.bits; }

  absl::Status Read(const IndexRange& rows, const IndexRange& columns, const RowForm& form,
                    RowScratch* scratch, std::byte* out) const override {
    std::vector<std::byte>& codes = scratch->parts[0];
    absl::Status read = ReadBlock(codes_, matrix_.columns, rows, columns, 1, &codes);
    if (!read.ok()) return read;
    if (form.is_codes()) return CopyCodes(rows, columns, form, codes.data(), out);
    auto* values = reinterpret_cast<float*>(out);
    const std::byte* code = codes.data();
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const int64_t first_scale = row / matrix_.scaled_rows * row_scales_;
      for (int64_t begin = columns.begin; begin < columns.end;) {
        const int64_t block = begin / matrix_.scaled_columns;
        const int64_t end = std::min(columns.end, (block + 1) * matrix_.scaled_columns);
        const auto at = static_cast<size_t>(first_scale + block);
        const float scale = scales_[at], zero = zeros_.empty() ? 0 : zeros_[at];
        float sum = 0;
        for (int64_t i = begin; i < end; ++i, ++code, ++values) {
          *values = scale * (values_[std::to_integer<size_t>(*code)] - zero);
          sum += *values;
        }
        // One that is no number stays so in the sum.
        if (std::isnan(sum)) return NoNumber(row);
        begin = end;
      }
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kMaxGroup = 128, kMinGroup = 32;

  static absl::Status NoNumber(int64_t row) {
    return absl::InvalidArgumentError(
        StrCat("row ", row, " has a code that is no number; the checkpoint is damaged"));
  }

  // FP8 as it is, in rows of kernels/byte_rows.h.
  absl::Status CopyCodes(const IndexRange& rows, const IndexRange& columns, const RowForm& form,
                         const std::byte* codes, std::byte* out) const {
    const int64_t row_bytes = RowBytes(form, columns.size());
    std::memset(out, 0, static_cast<size_t>(rows.size() * row_bytes));
    for (int64_t row = rows.begin; row < rows.end; ++row, out += row_bytes) {
      std::memcpy(out, codes, static_cast<size_t>(columns.size()));
      for (int64_t i = 0; i < columns.size(); ++i, ++codes) {
        const auto magnitude = std::to_integer<uint8_t>(*codes & std::byte{0x7f});
        if (magnitude == kernels::kF8NotANumber) return NoNumber(row);
      }
      std::byte* scales = out + kernels::ByteCodeBytes(columns.size());
      const int64_t first_scale = row / matrix_.scaled_rows * row_scales_;
      for (int64_t i = 0; i < columns.size(); i += form.group_size, scales += sizeof(float)) {
        const int64_t at = first_scale + (columns.begin + i) / matrix_.scaled_columns;
        std::memcpy(scales, &scales_[static_cast<size_t>(at)], sizeof(float));
      }
    }
    return absl::OkStatus();
  }

  const StoredMatrix matrix_;
  const CheckpointTensor codes_;
  const Values values_;
  const std::vector<float> scales_, zeros_;  // a block after the other; no zeros: all are 0
  const int64_t row_scales_;                 // of a row of blocks
};

// All elements of a small tensor.
absl::StatusOr<std::vector<float>> ReadAll(const CheckpointTensor& tensor) {
  int64_t count = 1;
  for (const int64_t size : tensor.entry->shape) count *= size;
  std::vector<float> values(static_cast<size_t>(count));
  std::vector<std::byte> raw;
  absl::Status read = ReadFloats(tensor, count, {0, 1}, {0, count}, &raw, values.data());
  if (!read.ok()) return read;
  return values;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const RowSource>> OpenEightBits(
    const Checkpoint& checkpoint, const v1::Quantization& /*quantization*/,
    std::string_view /*name*/, const StoredMatrix& matrix) {
  const CheckpointTensor& tensor = checkpoint.Get(matrix.scales);
  auto scales = ReadAll(tensor);
  if (!scales.ok()) return scales.status();
  for (size_t i = 0; i < scales->size(); ++i) {
    if (std::isfinite((*scales)[i])) continue;
    return absl::InvalidArgumentError(
        StrCat(tensor.Describe(), " is not finite at ", i, "; the checkpoint is damaged"));
  }
  absl::StatusOr<std::vector<float>> zeros = std::vector<float>();
  if (!matrix.zeros.empty()) zeros = ReadAll(checkpoint.Get(matrix.zeros));
  if (!zeros.ok()) return zeros.status();
  return std::make_shared<EightBitRows>(checkpoint, matrix, *std::move(scales), *std::move(zeros));
}

}  // namespace tessera::worker
