// Rows of one matrix, table or vector of a checkpoint, whatever the format that it is stored in.
//
// A format is one file that implements RowSource, and a line in the table of weight_formats.cc.
// Thread rule: const functions may be called from any thread, with a scratch of its own each.
// Ownership: a source points into the files of its Checkpoint, which outlives it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/dtype.h"
#include "kernels/index_range.h"
#include "kernels/offset_blocks.h"
#include "worker/weights/safetensors.h"

namespace tessera::worker {

// What rows are read as.
struct RowForm {
  // kF32, kF16, kBF16: elements, dense. Else codes and what they share: kI4 of
  // kernels/int4_rows.h, kI8 and kF8 of kernels/byte_rows.h.
  kernels::DType dtype = kernels::DType::kF32;
  int64_t group_size = 0;             // of codes: inputs that share a scale
  kernels::OffsetBlocks blocks = {};  // kI4 with an offset
  bool e2m1 = false;                  // kI8, as LinearSpec::e2m1

  bool is_codes() const {
    return dtype == kernels::DType::kI4 || dtype == kernels::DType::kI8 ||
           dtype == kernels::DType::kF8;
  }
  bool operator==(const RowForm&) const = default;
};

// Bytes of a row of so many columns.
int64_t RowBytes(const RowForm& form, int64_t columns);

// Memory that reading takes; fresh memory costs more than a copy.
struct RowScratch {
  std::array<std::vector<std::byte>, 4> parts;
};

// Where rows are in a file as ops can compute with them.
struct FileRows {
  const SafetensorsFile* file = nullptr;
  int64_t begin = 0;         // byte of the first element
  int64_t row_elements = 0;  // from row to row

  // From the first element to the last, of `rows` rows of `columns` elements of that many bytes.
  int64_t SpanBytes(int64_t rows, int64_t columns, int64_t element_bytes) const {
    return ((rows - 1) * row_elements + columns) * element_bytes;
  }
};

class RowSource {
 public:
  virtual ~RowSource() = default;

  // "<file>: tensor '<name>'", for errors.
  virtual std::string Describe() const = 0;
  // What rows of these columns are read as. InvalidArgument where a slice cannot begin there.
  virtual absl::StatusOr<RowForm> FormOf(const IndexRange& columns) const = 0;
  // Reads rows and columns to `out`, RowBytes(form, columns.size()) a row; `form` is
  // FormOf(columns), or, where that is of codes, elements of kF32, or codes whose scale is shared
  // by a divisor of so many inputs. Fails where the file does, or holds what cannot be (a scale
  // that is not finite).
  virtual absl::Status Read(const IndexRange& rows, const IndexRange& columns, const RowForm& form,
                            RowScratch* scratch, std::byte* out) const = 0;
  // nullopt: in no file as they are read.
  virtual std::optional<FileRows> InFile(const IndexRange& /*rows*/,
                                         const IndexRange& /*columns*/) const {
    return std::nullopt;
  }
  // Bits of a weight in the file where it is a code; 0: it is an element.
  virtual int64_t code_bits() const { return 0; }
  // Bytes of rows that are best read at once: they stay in a core's cache until they are packed.
  virtual int64_t part_bytes() const { return int64_t{1} << 20; }
};

}  // namespace tessera::worker
