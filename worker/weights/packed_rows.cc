#include "worker/weights/packed_rows.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "worker/weights/code_rows.h"

namespace tessera::worker {
namespace {

constexpr int64_t kWordBytes = 4;

class PackedRows : public CodeRows {
 public:
  PackedRows(const Checkpoint& checkpoint, std::string_view name, const StoredMatrix& matrix,
             std::vector<int32_t> order)
      : CodeRows(std::string(name), checkpoint.DescribeTensor(matrix.codes), matrix,
                 std::move(order)),
        codes_(checkpoint.Get(matrix.codes)),
        scales_(checkpoint.Get(matrix.scales)) {
    if (!matrix.zeros.empty()) zeros_ = checkpoint.Get(matrix.zeros);
  }

 private:
  absl::Status ReadCodes(const IndexRange& rows, const IndexRange& columns,
                         std::vector<std::byte>* raw, uint8_t* codes) const override {
    const int64_t bits = matrix().bits;
    const int64_t row_words = WordsOf({0, matrix().columns}, bits).size();
    const IndexRange words = WordsOf(columns, bits);
    absl::Status read = ReadBlock(codes_, row_words, rows, words, kWordBytes, raw);
    if (!read.ok()) return read;
    for (int64_t row = 0; row < rows.size(); ++row) {
      UnpackBits(raw->data() + row * words.size() * kWordBytes, columns.begin, columns.size(), bits,
                 codes + row * columns.size());
    }
    return absl::OkStatus();
  }

  absl::Status ReadZeros(const IndexRange& rows, const IndexRange& groups,
                         std::vector<std::byte>* raw, uint8_t* zeros) const override {
    const int64_t bits = matrix().bits, count = rows.size() * groups.size();
    if (zeros_.file == nullptr) {
      std::fill(zeros, zeros + count, static_cast<uint8_t>(1 << (bits - 1)));
      return absl::OkStatus();
    }
    const IndexRange words = WordsOf(rows, bits);
    const int64_t all_groups = matrix().columns / matrix().scaled_columns;
    absl::Status read = ReadBlock(zeros_, all_groups, words, groups, kWordBytes, raw);
    if (!read.ok()) return read;
    std::vector<std::byte> stream(words.size() * kWordBytes);
    std::vector<uint8_t> values(rows.size());
    for (int64_t group = 0; group < groups.size(); ++group) {
      for (int64_t word = 0; word < words.size(); ++word) {
        std::memcpy(stream.data() + word * kWordBytes,
                    raw->data() + (word * groups.size() + group) * kWordBytes, kWordBytes);
      }
      UnpackBits(stream.data(), rows.begin, rows.size(), bits, values.data());
      for (int64_t row = 0; row < rows.size(); ++row) {
        zeros[row * groups.size() + group] = values[row];
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadScales(const IndexRange& rows, const IndexRange& groups,
                          std::vector<std::byte>* raw, float* scales) const override {
    return ReadFloats(scales_, matrix().columns / matrix().scaled_columns, rows, groups, raw,
                      scales);
  }

  const CheckpointTensor codes_, scales_;
  CheckpointTensor zeros_;  // without a file: there is none
};

}  // namespace

absl::StatusOr<std::shared_ptr<const RowSource>> OpenPacked(
    const Checkpoint& checkpoint, const v1::Quantization& /*quantization*/, std::string_view name,
    const StoredMatrix& matrix) {
  auto order = ReadInputGroups(checkpoint, matrix);
  if (!order.ok()) return order.status();
  return std::make_shared<PackedRows>(checkpoint, name, matrix, *std::move(order));
}

}  // namespace tessera::worker
