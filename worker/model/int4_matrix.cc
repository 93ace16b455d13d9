#include "worker/model/int4_matrix.h"

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

// Of the words that hold these numbers.
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

}  // namespace

bool HasInt4(const Checkpoint& checkpoint, const v1::Model& model, std::string_view name) {
  return model.has_quantization() && checkpoint.Has(StrCat(name, ".qweight"));
}

absl::StatusOr<Int4Matrix> FindInt4(const Checkpoint& checkpoint,
                                    const v1::Quantization& quantization, std::string_view name,
                                    int64_t rows, int64_t columns) {
  const bool awq = IsAwq(quantization);
  if (rows % kOfWord != 0 || (!awq && columns % kOfWord != 0)) {
    return absl::InvalidArgumentError(StrCat("matrix '", name, "' [", rows, ", ", columns,
                                             "] cannot be int4: its sizes are no multiples of ",
                                             kOfWord));
  }
  const int64_t group = GroupOf(quantization, columns);
  const int64_t groups = (columns + group - 1) / group;
  Int4Matrix matrix = {.quantization = &quantization, .rows = rows, .columns = columns};
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
  matrix.codes = *codes;
  matrix.zeros = *zeros;
  matrix.scales = *scales;
  return matrix;
}

absl::StatusOr<int64_t> Int4GroupSize(const v1::Quantization& quantization, std::string_view name,
                                      int64_t all_columns, const IndexRange& columns) {
  const int64_t given = GroupOf(quantization, all_columns);
  if (given >= all_columns) return Int4GroupInputs(0);  // one group: it may be cut anywhere
  const int64_t group = std::gcd(Int4GroupInputs(given), columns.begin);
  if (group >= kMinGroup) return group;
  return absl::InvalidArgumentError(
      StrCat("worker share: inputs [", columns.begin, ", ", columns.end, ") of '", name,
             "' begin within a group of ", given,
             " int4 weights that share a scale; let the share begin at a multiple of ", kMinGroup,
             " inputs at least, such as by fewer ranks"));
}

absl::Status ReadInt4Rows(const Int4Matrix& matrix, const IndexRange& rows,
                          const IndexRange& columns, int64_t group_size, Int4Scratch* scratch,
                          std::byte* out) {
  const bool awq = IsAwq(*matrix.quantization);
  const int64_t given = GroupOf(*matrix.quantization, matrix.columns);
  const IndexRange groups = {columns.begin / given, (columns.end - 1) / given + 1};
  const IndexRange row_words = WordsOf(rows), column_words = WordsOf(columns);
  const int64_t words = matrix.rows / kOfWord;
  absl::Status read =
      awq ? ReadBlock(matrix.codes, words, columns, row_words, kWordBytes, &scratch->codes)
          : ReadBlock(matrix.codes, matrix.rows, column_words, rows, kWordBytes, &scratch->codes);
  read.Update(ReadBlock(matrix.zeros, words, groups, row_words, kWordBytes, &scratch->zeros));
  read.Update(ReadBlock(matrix.scales, matrix.rows, groups, rows, 2, &scratch->scales));
  if (!read.ok()) return read;

  const int64_t row_bytes = kernels::Int4RowBytes(columns.size(), group_size);
  std::memset(out, 0, rows.size() * row_bytes);
  if (awq) {
    const WordBlock codes(scratch->codes, columns, row_words);
    WriteCodes(rows, columns, row_bytes, out, [&](int64_t row, int64_t column) {
      return codes.Nibble(column, row / kOfWord, kAwqNibbles[row % kOfWord]);
    });
  } else {
    const WordBlock codes(scratch->codes, column_words, rows);
    WriteCodes(rows, columns, row_bytes, out, [&](int64_t row, int64_t column) {
      return codes.Nibble(column / kOfWord, row, column % kOfWord);
    });
  }

  const WordBlock zeros(scratch->zeros, groups, row_words);
  const uint32_t added = matrix.quantization->zeros_less_one() ? 1 : 0;
  const int64_t out_groups = kernels::Int4Groups(columns.size(), group_size);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    std::byte* place =
        out + (row - rows.begin) * row_bytes + kernels::Int4CodeBytes(columns.size());
    for (int64_t i = 0; i < out_groups; ++i) {
      const int64_t group = (columns.begin + i * group_size) / given;
      const int64_t at = (group - groups.begin) * rows.size() + row - rows.begin;
      const float scale = ScaleAt(matrix.scales, scratch->scales.data() + at * 2);
      if (!std::isfinite(scale)) {
        return absl::InvalidArgumentError(StrCat("the scale of output ", row, " in group ", group,
                                                 " is not finite; the checkpoint is damaged"));
      }
      const int64_t nibble = awq ? kAwqNibbles[row % kOfWord] : row % kOfWord;
      const uint32_t zero = zeros.Nibble(group, row / kOfWord, nibble) + added;
      const uint32_t word = kernels::Int4Word(scale, zero & 0xfu);
      std::memcpy(place + i * kWordBytes, &word, kWordBytes);
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera::worker
