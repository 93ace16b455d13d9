#include "worker/weights/mxfp4_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

constexpr int64_t kBlock = 32;  // inputs of a scale
constexpr int kNoNumber = 255;  // among scales

// A sign, two bits of exponent, one of mantissa (e2m1). Source: OCP Microscaling Formats (MX)
// specification 1.0 (2023), section 5.3.3.
constexpr std::array<float, 16> kValues = {0,  0.5f,  1,  1.5f,  2,  3,  4,  6,
                                           -0, -0.5f, -1, -1.5f, -2, -3, -4, -6};

class Mxfp4Rows : public RowSource {
 public:
  Mxfp4Rows(const Checkpoint& checkpoint, const StoredMatrix& matrix)
      : matrix_(matrix),
        codes_(checkpoint.Get(matrix.codes)),
        scales_(checkpoint.Get(matrix.scales)) {}

  std::string Describe() const override { return codes_.Describe(); }
  absl::StatusOr<RowForm> FormOf(const IndexRange& /*columns*/) const override { return RowForm{}; }
  int64_t code_bits() const override { return matrix_.bits; }

  absl::Status Read(const IndexRange& rows, const IndexRange& columns, const RowForm& /*form*/,
                    RowScratch* scratch, std::byte* out) const override {
    const IndexRange bytes = {columns.begin / 2, (columns.end + 1) / 2};
    const IndexRange blocks = {columns.begin / kBlock, (columns.end + kBlock - 1) / kBlock};
    std::vector<std::byte>&codes = scratch->parts[0], &scales = scratch->parts[1];
    absl::Status read = ReadBlock(codes_, matrix_.columns / 2, rows, bytes, 1, &codes);
    if (read.ok()) read = ReadBlock(scales_, matrix_.columns / kBlock, rows, blocks, 1, &scales);
    auto* values = reinterpret_cast<float*>(out);
    for (int64_t row = 0; row < rows.size() && read.ok(); ++row) {
      read = Decode(codes.data() + row * bytes.size() - bytes.begin,
                    scales.data() + row * blocks.size() - blocks.begin, columns,
                    values + row * columns.size());
    }
    return read;
  }

 private:
  // Of one row; byte 0 of both is the row's first, read or not.
  static absl::Status Decode(const std::byte* codes, const std::byte* scales,
                             const IndexRange& columns, float* out) {
    for (int64_t begin = columns.begin; begin < columns.end;) {
      const int64_t block = begin / kBlock, end = std::min(columns.end, (block + 1) * kBlock);
      const int exponent = std::to_integer<int>(scales[block]);
      if (exponent == kNoNumber) {
        return absl::InvalidArgumentError(StrCat("the scale of inputs from ", block * kBlock,
                                                 " on is no number; the checkpoint is damaged"));
      }
      const float scale = std::ldexp(1.0f, exponent - 127);
      for (; begin < end; ++begin) {
        const auto pair = std::to_integer<size_t>(codes[begin / 2]);
        *out++ = scale * kValues[begin % 2 == 0 ? pair & 15 : pair >> 4];
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
