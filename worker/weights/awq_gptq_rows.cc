#include "worker/weights/awq_gptq_rows.h"

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "worker/weights/code_rows.h"

namespace tessera::worker {
namespace {

constexpr int64_t kWordBits = 32, kWordBytes = 4;
constexpr int64_t kOfAwqWord = 8;
// Which nibble of an AWQ word is of output 0, 1, ... 7.
constexpr std::array<int64_t, kOfAwqWord> kAwqNibbles = {0, 4, 1, 5, 2, 6, 3, 7};

class AwqGptqRows : public CodeRows {
 public:
  AwqGptqRows(const Checkpoint& checkpoint, const v1::Quantization& quantization,
              std::string_view name, const StoredMatrix& matrix, std::vector<int32_t> order)
      : CodeRows(std::string(name), checkpoint.DescribeTensor(matrix.codes), matrix,
                 std::move(order)),
        codes_(checkpoint.Get(matrix.codes)),
        zeros_(checkpoint.Get(matrix.zeros)),
        scales_(checkpoint.Get(matrix.scales)),
        awq_(matrix.as == StoredAs::kAwq),
        zeros_less_one_(quantization.zeros_less_one()) {}

  // The inputs of a matrix follow each other below: more outputs at once are longer reads.
  int64_t part_bytes() const override { return int64_t{4} << 20; }

 private:
  absl::Status ReadCodes(const IndexRange& rows, const IndexRange& columns,
                         std::vector<std::byte>* raw, uint8_t* codes) const override {
    if (awq_) return ReadAcross(codes_, rows, columns, raw, codes);
    const IndexRange words = WordsOf(columns, matrix().bits);
    absl::Status read = ReadBlock(codes_, matrix().rows, words, rows, kWordBytes, raw);
    if (!read.ok()) return read;
    std::vector<std::byte> stream(words.size() * kWordBytes);
    for (int64_t row = 0; row < rows.size(); ++row) {
      for (int64_t word = 0; word < words.size(); ++word) {
        std::memcpy(stream.data() + word * kWordBytes,
                    raw->data() + (word * rows.size() + row) * kWordBytes, kWordBytes);
      }
      UnpackBits(stream.data(), columns.begin, columns.size(), matrix().bits,
                 codes + row * columns.size());
    }
    return absl::OkStatus();
  }

  absl::Status ReadZeros(const IndexRange& rows, const IndexRange& groups,
                         std::vector<std::byte>* raw, uint8_t* zeros) const override {
    absl::Status read = ReadAcross(zeros_, rows, groups, raw, zeros);
    const int most = (1 << matrix().bits) - 1;
    for (int64_t i = 0; zeros_less_one_ && i < rows.size() * groups.size(); ++i) {
      zeros[i] = static_cast<uint8_t>((zeros[i] + 1) & most);
    }
    return read;
  }

  absl::Status ReadScales(const IndexRange& rows, const IndexRange& groups,
                          std::vector<std::byte>* raw, float* scales) const override {
    std::vector<float> across(rows.size() * groups.size());
    absl::Status read = ReadFloats(scales_, matrix().rows, groups, rows, raw, across.data());
    for (int64_t row = 0; row < rows.size(); ++row) {
      for (int64_t i = 0; i < groups.size(); ++i) {
        scales[row * groups.size() + i] = across[i * rows.size() + row];
      }
    }
    return read;
  }

  // A tensor [lines, out] whose values stand in words of neighbouring outputs, to [out, lines].
  absl::Status ReadAcross(const CheckpointTensor& tensor, const IndexRange& rows,
                          const IndexRange& lines, std::vector<std::byte>* raw,
                          uint8_t* values) const {
    const int64_t bits = matrix().bits;
    const IndexRange words = WordsOf(rows, bits);
    absl::Status read =
        ReadBlock(tensor, matrix().rows * bits / kWordBits, lines, words, kWordBytes, raw);
    if (!read.ok()) return read;
    // AWQ: of whole words, because the outputs of a word are not in order.
    const IndexRange stored =
        awq_ ? IndexRange{words.begin * kOfAwqWord, words.end * kOfAwqWord} : rows;
    std::vector<uint8_t> across(stored.size());
    for (int64_t line = 0; line < lines.size(); ++line) {
      UnpackBits(raw->data() + line * words.size() * kWordBytes, stored.begin, stored.size(), bits,
                 across.data());
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        const int64_t place =
            awq_ ? row / kOfAwqWord * kOfAwqWord + kAwqNibbles[row % kOfAwqWord] : row;
        values[(row - rows.begin) * lines.size() + line] = across[place - stored.begin];
      }
    }
    return absl::OkStatus();
  }

  const CheckpointTensor codes_, zeros_, scales_;
  const bool awq_, zeros_less_one_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const RowSource>> OpenAwqGptq(const Checkpoint& checkpoint,
                                                             const v1::Quantization& quantization,
                                                             std::string_view name,
                                                             const StoredMatrix& matrix) {
  auto order = ReadInputGroups(checkpoint, matrix);
  if (!order.ok()) return order.status();
  return std::make_shared<AwqGptqRows>(checkpoint, quantization, name, matrix, *std::move(order));
}

}  // namespace tessera::worker
