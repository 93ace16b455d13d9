#include "worker/weights/mxfp4_rows.h"

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

constexpr int64_t kBlock = 32;  // inputs of a scale
constexpr int kNoNumber = 255;  // among scales

// Twice a sign, two bits of exponent, one of mantissa (e2m1). Source: OCP Microscaling Formats (MX)
// specification 1.0 (2023), section 5.3.3.
constexpr std::array<int8_t, 16> kDoubles = {0, 1,  2,  3,  4,  6,  8,  12,
                                             0, -1, -2, -3, -4, -6, -8, -12};
constexpr int64_t kMinGroup = 8;  // below, scales weigh as much as codes

class Mxfp4Rows : public RowSource {
 public:
  Mxfp4Rows(const Checkpoint& checkpoint, const StoredMatrix& matrix)
      : matrix_(matrix),
        codes_(checkpoint.Get(matrix.codes)),
        scales_(checkpoint.Get(matrix.scales)) {}

  std::string Describe() const override { return codes_.Describe(); }
  absl::StatusOr<RowForm> FormOf(const IndexRange& columns) const override {
    const int64_t group = std::gcd(kBlock, columns.begin);
    if (group < kMinGroup) return RowForm{};
    return RowForm{.dtype = kernels::DType::kI8, .group_size = group, .e2m1 = true};
  }
  int64_t code_bits() const override { return matrix_.bits; }

  absl::Status Read(const IndexRange& rows, const IndexRange& columns, const RowForm& form,
                    RowScratch* scratch, std::byte* out) const override {
    const IndexRange bytes = {columns.begin / 2, (columns.end + 1) / 2};
    const IndexRange blocks = {columns.begin / kBlock, (columns.end + kBlock - 1) / kBlock};
    std::vector<std::byte>&codes = scratch->parts[0], &scales = scratch->parts[1];
    absl::Status read = ReadBlock(codes_, matrix_.columns / 2, rows, bytes, 1, &codes);
    if (read.ok()) read = ReadBlock(scales_, matrix_.columns / kBlock, rows, blocks, 1, &scales);
    const int64_t row_bytes = RowBytes(form, columns.size());
    std::memset(out, 0, static_cast<size_t>(rows.size() * row_bytes));
    for (int64_t row = 0; row < rows.size() && read.ok(); ++row) {
      read = WriteRow(codes.data() + row * bytes.size() - bytes.begin,
                      scales.data() + row * blocks.size() - blocks.begin, columns, form,
                      out + row * row_bytes);
    }
    return read;
  }

 private:
  // Byte 0 of both is the row's first in the file, read or not; `out`: zeros.
  static absl::Status WriteRow(const std::byte* codes, const std::byte* scales,
                               const IndexRange& columns, const RowForm& form, std::byte* out) {
    std::byte* groups = out + kernels::ByteCodeBytes(columns.size());
    for (int64_t i = 0; i < columns.size(); ++i) {
      const int64_t column = columns.begin + i, block = column / kBlock;
      const int exponent = std::to_integer<int>(scales[block]);
      if (exponent == kNoNumber) {
        return absl::InvalidArgumentError(StrCat("the scale of inputs from ", block * kBlock,
                                                 " on is no number; the checkpoint is damaged"));
      }
      const auto pair = std::to_integer<size_t>(codes[column / 2]);
      const int8_t code = kDoubles[column % 2 == 0 ? pair & 15 : pair >> 4];
      const float scale = std::ldexp(1.0f, exponent - 128);
      if (form.is_codes()) {
        out[i] = static_cast<std::byte>(code);
        if (i % form.group_size != 0) continue;
        std::memcpy(groups + i / form.group_size * 4, &scale, sizeof(scale));
      } else {
        const float value = scale * static_cast<float>(code);
        std::memcpy(out + i * 4, &value, sizeof(value));
      }
    }
    return absl::OkStatus();
  }

  const StoredMatrix matrix_;
  const CheckpointTensor codes_, scales_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const RowSource>> OpenMxfp4(const Checkpoint& checkpoint,
                                                           const v1::Quantization& /*quantization*/,
                                                           std::string_view /*name*/,
                                                           const StoredMatrix& matrix) {
  return std::make_shared<Mxfp4Rows>(checkpoint, matrix);
}

}  // namespace tessera::worker
