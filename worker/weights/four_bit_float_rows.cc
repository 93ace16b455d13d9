#include "worker/weights/four_bit_float_rows.h"

#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/byte_rows.h"
#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

// Twice a number of e2m1: sign, two bits of exponent, one of mantissa. Source: OCP Microscaling
// Formats (MX) specification 1.0 (2023), section 5.3.3.
constexpr std::array<int8_t, 16> kDoubles = {0, 1,  2,  3,  4,  6,  8,  12,
                                             0, -1, -2, -3, -4, -6, -8, -12};
constexpr int64_t kMinGroup = 8;  // below, scales weigh as much as codes

class FourBitFloatRows : public RowSource {
 public:
  FourBitFloatRows(const Checkpoint& checkpoint, const StoredMatrix& matrix, float matrix_scale)
      : matrix_(matrix),
        codes_(checkpoint.Get(matrix.codes)),
        scales_(checkpoint.Get(matrix.scales)),
        are_powers_(scales_.entry->dtype == "U8"),
        matrix_scale_(matrix_scale) {}

  std::string Describe() const override { return codes_.Describe(); }
  absl::StatusOr<RowForm> FormOf(const IndexRange& columns) const override {
    const int64_t group = std::gcd(matrix_.scaled_columns, columns.begin);
    if (group < kMinGroup) return RowForm{};
    return RowForm{.dtype = kernels::DType::kI8, .group_size = group};
  }
  int64_t code_bits() const override { return matrix_.bits; }

  absl::Status Read(const IndexRange& rows, const IndexRange& columns, const RowForm& form,
                    RowScratch* scratch, std::byte* out) const override {
    const int64_t block = matrix_.scaled_columns;
    const IndexRange bytes = {columns.begin / 2, (columns.end + 1) / 2};
    const IndexRange blocks = {columns.begin / block, (columns.end + block - 1) / block};
    std::vector<std::byte>&codes = scratch->parts[0], &scales = scratch->parts[1];
    absl::Status read = ReadBlock(codes_, matrix_.columns / 2, rows, bytes, 1, &codes);
    if (read.ok()) read = ReadBlock(scales_, matrix_.columns / block, rows, blocks, 1, &scales);
    if (!read.ok()) return read;
    const int64_t row_bytes = RowBytes(form, columns.size());
    std::memset(out, 0, static_cast<size_t>(rows.size() * row_bytes));
    std::vector<float> halves(static_cast<size_t>(blocks.size()));
    for (int64_t row = 0; row < rows.size(); ++row) {
      for (int64_t i = 0; i < blocks.size(); ++i) {
        const float half = HalfScale(scales[static_cast<size_t>(row * blocks.size() + i)]);
        if (!std::isfinite(half)) {
          return absl::InvalidArgumentError(
              StrCat("a scale of row ", rows.begin + row,
                     " is no finite number; the checkpoint is damaged"));
        }
        halves[static_cast<size_t>(i)] = half;
      }
      WriteRow(codes.data() + row * bytes.size() - bytes.begin, halves.data() - blocks.begin,
               columns, form, out + row * row_bytes);
    }
    return absl::OkStatus();
  }

 private:
  // Half of what multiplies a number of e2m1.
  float HalfScale(std::byte stored) const {
    const auto code = std::to_integer<uint8_t>(stored);
    constexpr uint8_t kNoPower = 255;
    if (are_powers_) return code == kNoPower ? NAN : std::ldexp(1.0f, code - 128);
    if ((code & 0x7f) == kernels::kF8NotANumber) return NAN;
    const float scale = kernels::F8ToFloat(code);
    return (matrix_.divides_scales ? scale / matrix_scale_ : scale * matrix_scale_) / 2;
  }

  // Byte 0 of the codes, and scale 0, are the row's first in the file, read or not; `out`: zeros.
  void WriteRow(const std::byte* codes, const float* half_scales, const IndexRange& columns,
                const RowForm& form, std::byte* out) const {
    std::byte* groups = out + kernels::ByteCodeBytes(columns.size());
    for (int64_t i = 0; i < columns.size(); ++i) {
      const int64_t column = columns.begin + i;
      const auto pair = std::to_integer<size_t>(codes[column / 2]);
      const int8_t code = kDoubles[column % 2 == 0 ? pair & 15 : pair >> 4];
      const float scale = half_scales[column / matrix_.scaled_columns];
      if (!form.is_codes()) {
        const float value = scale * static_cast<float>(code);
        std::memcpy(out + i * 4, &value, sizeof(value));
        continue;
      }
      out[i] = static_cast<std::byte>(code);
      if (i % form.group_size != 0) continue;
      std::memcpy(groups + i / form.group_size * 4, &scale, sizeof(scale));
    }
  }

  const StoredMatrix matrix_;
  const CheckpointTensor codes_, scales_;
  const bool are_powers_;
  const float matrix_scale_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const RowSource>> OpenFourBitFloats(
    const Checkpoint& checkpoint, const v1::Quantization& /*quantization*/,
    std::string_view /*name*/, const StoredMatrix& matrix) {
  float number = 1;
  if (!matrix.matrix_scale.empty()) {
    const CheckpointTensor& tensor = checkpoint.Get(matrix.matrix_scale);
    std::vector<std::byte> raw;
    const absl::Status read = ReadFloats(tensor, 1, {0, 1}, {0, 1}, &raw, &number);
    if (!read.ok()) return read;
    if (!std::isfinite(number) || number == 0) {
      return absl::InvalidArgumentError(
          StrCat(tensor.Describe(), " is ", number,
                 "; it must be a finite number other than 0; the checkpoint is damaged"));
    }
  }
  return std::make_shared<FourBitFloatRows>(checkpoint, matrix, number);
}

}  // namespace tessera::worker
