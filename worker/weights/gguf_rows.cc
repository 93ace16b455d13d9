#include "worker/weights/gguf_rows.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

#include "kernels/byte_rows.h"
#include "kernels/int4_rows.h"
#include "proto/model/gguf_header.h"
#include "third_party/absl/str_cat.h"
#include "worker/weights/gguf_blocks.h"

namespace tessera::worker {
namespace {

using kernels::DType;

constexpr int8_t kNoInt8 = -128;
constexpr int64_t kMinGroup = 8;  // below, scales weigh as much as codes

class GgufRows : public RowSource {
 public:
  GgufRows(const CheckpointTensor& tensor, const StoredMatrix& matrix)
      : tensor_(tensor),
        type_(*FindGgufType(tensor.entry->dtype)),
        codes_(*FindGgufCodeType(type_.name)),
        matrix_(matrix) {}

  std::string Describe() const override { return tensor_.Describe(); }

  // Groups are cut so that the slice begins with one; so are pairs of one group.
  absl::StatusOr<RowForm> FormOf(const IndexRange& columns) const override {
    const int64_t group = std::gcd(int64_t{codes_.group}, columns.begin);
    if (codes_.dtype == DType::kF32 || group < kMinGroup) return RowForm{};
    RowForm form = {.dtype = codes_.dtype, .group_size = group};
    if (codes_.pair_values == codes_.group) {
      form.blocks.size = group;
    } else if (codes_.pair_values > 0) {
      form.blocks = {.size = codes_.pair_values, .skipped = columns.begin % codes_.pair_values};
    }
    return form;
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
    std::memset(out, 0, static_cast<size_t>(rows.size() * row_bytes));
    for (int64_t row = rows.begin; row < rows.end && read.ok(); ++row) {
      read = WriteRow(row, columns, form, stored.data() + (row - rows.begin) * stored_bytes,
                      out + (row - rows.begin) * row_bytes);
    }
    return read;
  }

 private:
  // `in`: the first block that the slice has a part of; `out`: zeros.
  absl::Status WriteRow(int64_t row, const IndexRange& columns, const RowForm& form,
                        const std::byte* in, std::byte* out) const {
    GgufCodes block;
    int64_t next = columns.begin / type_.values * type_.values;  // the block's first column
    for (; next < columns.end; next += type_.values, in += type_.bytes) {
      codes_.read(in, &block);
      const int64_t begin = std::max(columns.begin, next), end = next + type_.values;
      for (int64_t column = begin; column < std::min(columns.end, end); ++column) {
        const auto i = static_cast<int>(column - next);
        const int64_t input = column - columns.begin;  // of the slice
        const int group = i / codes_.group;
        const bool first = column == begin || i % codes_.group == 0;
        if (first && !HasFiniteScales(codes_, block, group)) {
          return absl::InvalidArgumentError(
              StrCat("a scale of output ", row, " is not finite; the file is damaged"));
        }
        if (!form.is_codes()) {
          const float value = GgufValue(codes_, block, i);
          std::memcpy(out + input * static_cast<int64_t>(sizeof(value)), &value, sizeof(value));
          continue;
        }
        if (block.codes[i] == kNoInt8) {
          return absl::InvalidArgumentError(
              StrCat("output ", row, " has the code -128, which no quantiser writes and int8 ",
                     "weights here do not have; the file is damaged"));
        }
        WriteCode(block.codes[i], input, form, out);
        if (input % form.group_size == 0) WriteScale(block, group, input, columns, form, out);
      }
    }
    return absl::OkStatus();
  }

  static void WriteCode(int8_t code, int64_t input, const RowForm& form, std::byte* out) {
    if (form.dtype == DType::kI8) {
      out[input] = static_cast<std::byte>(code);
    } else {
      out[input / 2] |= static_cast<std::byte>(code << (4 * (input % 2)));
    }
  }

  // What the group shares that begins with `input`.
  void WriteScale(const GgufCodes& block, int group, int64_t input, const IndexRange& columns,
                  const RowForm& form, std::byte* out) const {
    const int64_t number = input / form.group_size;
    if (form.dtype == DType::kI8) {
      std::byte* scales = out + kernels::ByteCodeBytes(columns.size());
      std::memcpy(scales + number * 4, &block.scales[group], sizeof(float));
      return;
    }
    std::byte* words = out + kernels::Int4CodeBytes(columns.size());
    if (form.blocks.size == 0) {
      const uint32_t word = kernels::Int4Word(block.scales[group], codes_.zero);
      std::memcpy(words + number * 4, &word, sizeof(word));
      return;
    }
    const int64_t pair = (form.blocks.skipped + input) / form.blocks.size;
    std::memcpy(words + pair * 4, &block.pair, sizeof(block.pair));
    if (!kernels::HasSteps(form.group_size, form.blocks)) return;
    std::byte* steps = words + kernels::Int4Words(columns.size(), form.group_size, form.blocks) * 4;
    std::memcpy(steps + number * 2, &block.steps[group], sizeof(kernels::Int4Steps));
  }

  const CheckpointTensor tensor_;
  const GgufType& type_;
  const GgufCodeType& codes_;
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
