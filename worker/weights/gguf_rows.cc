#include "worker/weights/gguf_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>

#include "kernels/int4_rows.h"
#include "proto/model/gguf_header.h"
#include "third_party/absl/str_cat.h"
#include "worker/weights/gguf_blocks.h"

namespace tessera::worker {
namespace {

using kernels::DType;

constexpr int64_t kMinInt4Group = 8;  // below, words weigh as much as codes
constexpr int64_t kMaxBlockValues = 256;
constexpr uint32_t kQ4Zero = 8;  // of Q4_0's codes

class GgufRows : public RowSource {
 public:
  GgufRows(const CheckpointTensor& tensor, const StoredMatrix& matrix)
      : tensor_(tensor),
        type_(*FindGgufType(tensor.entry->dtype)),
        decoder_(FindGgufDecoder(type_.name)),
        matrix_(matrix) {}

  std::string Describe() const override { return tensor_.Describe(); }

  absl::StatusOr<RowForm> FormOf(const IndexRange& columns) const override {
    if (type_.name == "Q4_0") {
      const int64_t group = std::gcd(type_.values, columns.begin);
      if (group >= kMinInt4Group) return RowForm{.dtype = DType::kI4, .group_size = group};
    }
    if (type_.name == "Q8_0" && columns.begin % type_.values == 0) {
      return RowForm{.dtype = DType::kF32, .int8_group_size = type_.values};
    }
    return RowForm{.dtype = DType::kF32};
  }

  int64_t code_bits() const override { return matrix_.bits; }

  absl::Status Read(const IndexRange& rows, const IndexRange& columns, const RowForm& form,
                    RowScratch* scratch, std::byte* out) const override {
    const IndexRange blocks = {columns.begin / type_.values,
                               (columns.end + type_.values - 1) / type_.values};
    std::vector<std::byte>& stored = scratch->parts[0];
    absl::Status read =
        ReadBlock(tensor_, matrix_.columns / type_.values, rows, blocks, type_.bytes, &stored);
    const int64_t stored_bytes = blocks.size() * type_.bytes;
    const int64_t row_bytes = RowBytes(form, columns.size());
    for (int64_t row = rows.begin; row < rows.end && read.ok(); ++row) {
      const std::byte* in = stored.data() + (row - rows.begin) * stored_bytes;
      std::byte* to = out + (row - rows.begin) * row_bytes;
      read = form.dtype == DType::kI4 ? WriteCodes(row, columns, blocks, form, in, to)
                                      : WriteValues(row, columns, blocks, in, to);
    }
    return read;
  }

 private:
  // Values of a row's slice that lie in a block, counted from the block's first.
  IndexRange Within(const IndexRange& columns, int64_t block) const {
    const int64_t first = block * type_.values;
    return {std::max(columns.begin, first) - first,
            std::min(columns.end, first + type_.values) - first};
  }

  static absl::Status NotFinite(int64_t row) {
    return absl::InvalidArgumentError(
        StrCat("a scale of output ", row, " is not finite; the file is damaged"));
  }

  absl::Status WriteValues(int64_t row, const IndexRange& columns, const IndexRange& blocks,
                           const std::byte* in, std::byte* out) const {
    float values[kMaxBlockValues];
    for (int64_t block = blocks.begin; block < blocks.end; ++block, in += type_.bytes) {
      decoder_(in, values);
      const IndexRange within = Within(columns, block);
      const bool finite = std::all_of(values + within.begin, values + within.end,
                                      [](float value) { return std::isfinite(value); });
      if (!finite) return NotFinite(row);
      std::memcpy(out, values + within.begin, static_cast<size_t>(within.size()) * sizeof(float));
      out += within.size() * static_cast<int64_t>(sizeof(float));
    }
    return absl::OkStatus();
  }

  // Q4_0's, in kernels/int4_rows.h.
  absl::Status WriteCodes(int64_t row, const IndexRange& columns, const IndexRange& blocks,
                          const RowForm& form, const std::byte* in, std::byte* out) const {
    std::memset(out, 0, static_cast<size_t>(RowBytes(form, columns.size())));
    std::byte* words = out + kernels::Int4CodeBytes(columns.size());
    int64_t input = 0;  // of the slice
    for (int64_t block = blocks.begin; block < blocks.end; ++block, in += type_.bytes) {
      const float scale = GgufHalf(in);
      if (!std::isfinite(scale)) return NotFinite(row);
      const IndexRange within = Within(columns, block);
      for (int64_t i = within.begin; i < within.end; ++i, ++input) {
        const auto code = std::to_integer<uint32_t>(in[2 + i % 16]) >> (4 * (i / 16)) & 0xfu;
        out[input / 2] |= static_cast<std::byte>(code << (4 * (input % 2)));
        if (input % form.group_size != 0) continue;
        const uint32_t word = kernels::Int4Word(scale, kQ4Zero);
        std::memcpy(words + input / form.group_size * 4, &word, sizeof(word));
      }
    }
    return absl::OkStatus();
  }

  const CheckpointTensor tensor_;
  const GgufType& type_;
  const GgufDecoder decoder_;
  const StoredMatrix matrix_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const RowSource>> OpenGguf(const Checkpoint& checkpoint,
                                                          const v1::Quantization& /*quantization*/,
                                                          std::string_view /*name*/,
                                                          const StoredMatrix& matrix) {
  return std::make_shared<GgufRows>(checkpoint.Get(matrix.codes), matrix);
}

}  // namespace tessera::worker
