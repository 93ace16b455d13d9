// Rows of a matrix that a checkpoint holds as packed codes: scale * (code - zero), scale and zero
// shared by a group of an output's inputs. One part is the same for all such formats: rows become
// the one layout that ops take (kernels/int4_rows.h), or elements.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/model/formats/stored_matrix.h"
#include "worker/weights/checkpoint.h"
#include "worker/weights/row_source.h"

namespace tessera::worker {

// The group of each input. Empty where there is no such tensor, and where it is input / group.
// InvalidArgument for a group that is none.
absl::StatusOr<std::vector<int32_t>> ReadInputGroups(const Checkpoint& checkpoint,
                                                     const StoredMatrix& matrix);

class CodeRows : public RowSource {
 public:
  // `name`: of the matrix, for errors.
  CodeRows(std::string name, std::string place, StoredMatrix matrix, std::vector<int32_t> order);

  std::string Describe() const override { return place_; }
  absl::StatusOr<RowForm> FormOf(const IndexRange& columns) const override;
  absl::Status Read(const IndexRange& rows, const IndexRange& columns, const RowForm& form,
                    RowScratch* scratch, std::byte* out) const override;
  int64_t code_bits() const override { return matrix_.bits; }

 protected:
  const StoredMatrix& matrix() const { return matrix_; }

 private:
  // What a format defines, [rows, columns] or [rows, groups], dense; they may read to `raw`.
  virtual absl::Status ReadCodes(const IndexRange& rows, const IndexRange& columns,
                                 std::vector<std::byte>* raw, uint8_t* codes) const = 0;
  virtual absl::Status ReadZeros(const IndexRange& rows, const IndexRange& groups,
                                 std::vector<std::byte>* raw, uint8_t* zeros) const = 0;
  virtual absl::Status ReadScales(const IndexRange& rows, const IndexRange& groups,
                                  std::vector<std::byte>* raw, float* scales) const = 0;

  // Groups that the scales of these columns are of.
  IndexRange GroupsOf(const IndexRange& columns) const;
  int64_t GroupOf(int64_t column) const {
    return order_.empty() ? column / matrix_.scaled_columns : order_[static_cast<size_t>(column)];
  }

  const std::string name_, place_;
  const StoredMatrix matrix_;
  const std::vector<int32_t> order_;
};

// Words of 32 bits that hold these values of a dense stream.
IndexRange WordsOf(const IndexRange& values, int64_t bits);

// `count` values of at most 8 bits from a dense stream of words that begins with WordsOf the first:
// the first value of a word in its lowest bits, the rest of one that ends beyond it in the next.
void UnpackBits(const std::byte* words, int64_t first, int64_t count, int64_t bits, uint8_t* out);

}  // namespace tessera::worker
