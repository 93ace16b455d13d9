#include "worker/weights/awq_gptq_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>

#include "kernels/half_floats.h"
#include "kernels/int4_rows.h"
#include "proto/activations.h"
#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

using kernels::DType;

constexpr int64_t kOfWord = 8;  // nibbles
constexpr int64_t kWordBytes = 4;
constexpr int64_t kMinGroup = 8;  // below, words weigh as much as codes
// Which nibble of an AWQ word is of output 0, 1, ... 7.
constexpr std::array<int64_t, kOfWord> kAwqNibbles = {0, 4, 1, 5, 2, 6, 3, 7};

bool IsAwq(const v1::Quantization& quantization) {
  return quantization.format() == v1::WEIGHT_FORMAT_AWQ;
}

int64_t GroupOf(const v1::Quantization& quantization, int64_t columns) {
  return quantization.group_size() == 0 ? columns : quantization.group_size();
}

// Words that hold these numbers.
IndexRange WordsOf(const IndexRange& range) {
  return {range.begin / kOfWord, (range.end + kOfWord - 1) / kOfWord};
}

// Words of a tensor, rows [rows.begin, ...) and columns [columns.begin, ...) of it.
class WordBlock {
 public:
  WordBlock(const std::vector<std::byte>& bytes, const IndexRange& rows, const IndexRange& columns)
      : bytes_(bytes), rows_(rows), columns_(columns) {}

  uint32_t Nibble(int64_t row, int64_t column, int64_t nibble) const {
    const int64_t at = (row - rows_.begin) * columns_.size() + column - columns_.begin;
    uint32_t word;
    std::memcpy(&word, bytes_.data() + at * kWordBytes, kWordBytes);
    return word >> (4 * nibble) & 0xfu;
  }

 private:
  const std::vector<std::byte>& bytes_;
  const IndexRange rows_, columns_;
};

// code_at(row, column) of each row and column to the codes of the rows at `out`, which are zero.
template <typename CodeAt>
void WriteCodes(const IndexRange& rows, const IndexRange& columns, int64_t row_bytes,
                std::byte* out, const CodeAt& code_at) {
  // A block's words stay in the cache while rows are written one after the other.
  constexpr int64_t kBlockColumns = 64;
  for (int64_t begin = columns.begin; begin < columns.end; begin += kBlockColumns) {
    const int64_t end = std::min(columns.end, begin + kBlockColumns);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      std::byte* codes = out + (row - rows.begin) * row_bytes + (begin - columns.begin) / 2;
      for (int64_t column = begin; column < end; column += 2) {
        const uint32_t high = column + 1 < end ? code_at(row, column + 1) : 0;
        *codes++ = static_cast<std::byte>(code_at(row, column) | high << 4);
      }
    }
  }
}

float ScaleAt(const CheckpointTensor& scales, const std::byte* data) {
  uint16_t bits;
  std::memcpy(&bits, data, sizeof(bits));
  return DTypeOf(scales) == DType::kBF16 ? kernels::ToFloat(kernels::BFloat16{bits})
                                         : kernels::ToFloat(kernels::Float16{bits});
}

// Act-order puts neighbouring inputs into different groups.
absl::Status CheckGroupIndex(const Checkpoint& checkpoint, const std::string& name, int64_t columns,
                             int64_t group) {
  if (!checkpoint.Has(name)) return absl::OkStatus();
  const auto tensor = checkpoint.FindInt32(name, {columns});
  if (!tensor.ok()) return tensor.status();
  std::vector<std::byte> bytes;
  absl::Status read = ReadBlock(*tensor, columns, {0, 1}, {0, columns}, kWordBytes, &bytes);
  if (!read.ok()) return read;
  for (int64_t i = 0; i < columns; ++i) {
    int32_t value;
    std::memcpy(&value, bytes.data() + i * kWordBytes, kWordBytes);
    if (value == i / group) continue;
    return absl::InvalidArgumentError(StrCat(
        tensor->Describe(), " puts input ", i, " into group ", value, " instead of ", i / group,
        ": act-order is not supported; use a checkpoint made with desc_act false"));
  }
  return absl::OkStatus();
}

// Int4GroupInputs of what the checkpoint gives, cut so that the slice begins between groups.
absl::StatusOr<int64_t> GroupOfSlice(int64_t given, std::string_view name, int64_t all_columns,
                                     const IndexRange& columns) {
  if (given >= all_columns) return Int4GroupInputs(0);  // one group: it may be cut anywhere
  const int64_t group = std::gcd(Int4GroupInputs(given), columns.begin);
  if (group >= kMinGroup) return group;
  return absl::InvalidArgumentError(
      StrCat("worker share: inputs [", columns.begin, ", ", columns.end, ") of '", name,
             "' begin within a group of ", given,
             " int4 weights that share a scale; let the share begin at a multiple of ", kMinGroup,
             " inputs at least, such as by fewer ranks"));
}

class AwqGptqRows : public RowSource {
 public:
  struct Tensors {
    CheckpointTensor codes, zeros, scales;
  };

  AwqGptqRows(const v1::Quantization& quantization, std::string_view name, const Tensors& tensors,
              int64_t rows, int64_t columns)
      : name_(name),
        tensors_(tensors),
        awq_(IsAwq(quantization)),
        zeros_less_one_(quantization.zeros_less_one()),
        group_(GroupOf(quantization, columns)),
        rows_(rows),
        columns_(columns) {}

  std::string Describe() const override { return tensors_.codes.Describe(); }

  absl::StatusOr<RowForm> FormOf(const IndexRange& columns) const override {
    const auto group = GroupOfSlice(group_, name_, columns_, columns);
    if (!group.ok()) return group.status();
    return RowForm{.dtype = DType::kI4, .group_size = *group};
  }

  // The inputs of a matrix follow each other below: more outputs at once are longer reads.
  int64_t part_bytes() const override { return int64_t{4} << 20; }

  absl::Status Read(const IndexRange& rows, const IndexRange& columns, const RowForm& form,
                    RowScratch* scratch, std::byte* out) const override {
    const IndexRange groups = {columns.begin / group_, (columns.end - 1) / group_ + 1};
    if (absl::Status s = ReadTensors(rows, columns, groups, scratch); !s.ok()) return s;
    const int64_t row_bytes = RowBytes(form, columns.size());
    std::memset(out, 0, rows.size() * row_bytes);
    const IndexRange row_words = WordsOf(rows);
    if (awq_) {
      const WordBlock codes(scratch->parts[0], columns, row_words);
      WriteCodes(rows, columns, row_bytes, out, [&](int64_t row, int64_t column) {
        return codes.Nibble(column, row / kOfWord, kAwqNibbles[row % kOfWord]);
      });
    } else {
      const WordBlock codes(scratch->parts[0], WordsOf(columns), rows);
      WriteCodes(rows, columns, row_bytes, out, [&](int64_t row, int64_t column) {
        return codes.Nibble(column / kOfWord, row, column % kOfWord);
      });
    }
    return WriteScales(rows, columns, groups, form, *scratch, out);
  }

 private:
  absl::Status ReadTensors(const IndexRange& rows, const IndexRange& columns,
                           const IndexRange& groups, RowScratch* scratch) const {
    auto& [codes, zeros, scales] = scratch->parts;
    const IndexRange row_words = WordsOf(rows);
    const int64_t words = rows_ / kOfWord;
    absl::Status read =
        awq_ ? ReadBlock(tensors_.codes, words, columns, row_words, kWordBytes, &codes)
             : ReadBlock(tensors_.codes, rows_, WordsOf(columns), rows, kWordBytes, &codes);
    read.Update(ReadBlock(tensors_.zeros, words, groups, row_words, kWordBytes, &zeros));
    read.Update(ReadBlock(tensors_.scales, rows_, groups, rows, 2, &scales));
    return read;
  }

  absl::Status WriteScales(const IndexRange& rows, const IndexRange& columns,
                           const IndexRange& groups, const RowForm& form, const RowScratch& scratch,
                           std::byte* out) const {
    const WordBlock zeros(scratch.parts[1], groups, WordsOf(rows));
    const std::byte* scales = scratch.parts[2].data();
    const uint32_t added = zeros_less_one_ ? 1 : 0;
    const int64_t out_groups = kernels::Int4Groups(columns.size(), form.group_size);
    const int64_t row_bytes = RowBytes(form, columns.size());
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      std::byte* place =
          out + (row - rows.begin) * row_bytes + kernels::Int4CodeBytes(columns.size());
      for (int64_t i = 0; i < out_groups; ++i) {
        const int64_t group = (columns.begin + i * form.group_size) / group_;
        const int64_t at = (group - groups.begin) * rows.size() + row - rows.begin;
        const float scale = ScaleAt(tensors_.scales, scales + at * 2);
        if (!std::isfinite(scale)) {
          return absl::InvalidArgumentError(StrCat("the scale of output ", row, " in group ", group,
                                                   " is not finite; the checkpoint is damaged"));
        }
        const int64_t nibble = awq_ ? kAwqNibbles[row % kOfWord] : row % kOfWord;
        const uint32_t zero = zeros.Nibble(group, row / kOfWord, nibble) + added;
        const uint32_t word = kernels::Int4Word(scale, zero & 0xfu);
        std::memcpy(place + i * kWordBytes, &word, kWordBytes);
      }
    }
    return absl::OkStatus();
  }

  const std::string name_;
  const Tensors tensors_;
  const bool awq_;
  const bool zeros_less_one_;  // as stored, modulo 16
  const int64_t group_;        // inputs that share a scale in the checkpoint
  const int64_t rows_, columns_;
};

}  // namespace

bool HoldsAwqGptq(const Checkpoint& checkpoint, const v1::Model& model, std::string_view name) {
  return model.has_quantization() && checkpoint.Has(StrCat(name, ".qweight"));
}

absl::StatusOr<std::shared_ptr<const RowSource>> OpenAwqGptq(const Checkpoint& checkpoint,
                                                             const v1::Model& model,
                                                             std::string_view name, int64_t rows,
                                                             int64_t columns) {
  const v1::Quantization& quantization = model.quantization();
  const bool awq = IsAwq(quantization);
  if (rows % kOfWord != 0 || (!awq && columns % kOfWord != 0)) {
    return absl::InvalidArgumentError(StrCat("matrix '", name, "' [", rows, ", ", columns,
                                             "] cannot be int4: its sizes are no multiples of ",
                                             kOfWord));
  }
  const int64_t group = GroupOf(quantization, columns);
  const int64_t groups = (columns + group - 1) / group;
  const auto codes =
      awq ? checkpoint.FindInt32(StrCat(name, ".qweight"), {columns, rows / kOfWord})
          : checkpoint.FindInt32(StrCat(name, ".qweight"), {columns / kOfWord, rows});
  if (!codes.ok()) return codes.status();
  const auto zeros = checkpoint.FindInt32(StrCat(name, ".qzeros"), {groups, rows / kOfWord});
  if (!zeros.ok()) return zeros.status();
  const auto scales = checkpoint.Find(StrCat(name, ".scales"), {groups, rows});
  if (!scales.ok()) return scales.status();
  if (DTypeOf(*scales) == DType::kF32) {
    return absl::InvalidArgumentError(
        StrCat(scales->Describe(), " is F32; scales of int4 weights must be F16 or BF16"));
  }
  if (!awq) {
    absl::Status index = CheckGroupIndex(checkpoint, StrCat(name, ".g_idx"), columns, group);
    if (!index.ok()) return index;
  }
  return std::make_shared<AwqGptqRows>(
      quantization, name, AwqGptqRows::Tensors{.codes = *codes, .zeros = *zeros, .scales = *scales},
      rows, columns);
}

}  // namespace tessera::worker
