// Matrices that a checkpoint holds as int4 (AWQ, GPTQ without act-order), and their rows in the one
// layout that ops take (kernels/int4_rows.h).
//
// NAME.qweight has eight codes in a word, NAME.qzeros eight zeros, NAME.scales [groups, out] the
// scales. AWQ packs neighbouring outputs: qweight [in, out / 8], the nibbles of a word, from the
// lowest on, those of outputs 0 2 4 6 1 3 5 7; qzeros the same. GPTQ packs neighbouring inputs:
// qweight [in / 8, out], nibbles in order; qzeros [groups, out / 8] outputs in order.
// Thread-safe: pure functions but for reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/model.pb.h"
#include "worker/model/checkpoint.h"
#include "worker/model/index_range.h"

namespace tessera::worker {

// One matrix [rows, columns] (outputs, inputs) in its files. What it points to belongs to others.
struct Int4Matrix {
  const v1::Quantization* quantization = nullptr;
  CheckpointTensor codes = {}, zeros = {}, scales = {};
  int64_t rows = 0;
  int64_t columns = 0;
};

// Whether the checkpoint holds the matrix `name` ("model.layers.0.mlp.up_proj") as int4.
bool HasInt4(const Checkpoint& checkpoint, const v1::Model& model, std::string_view name);

// Looks up the tensors and checks their shapes. InvalidArgument naming the tensor, also for rows or
// columns that are no multiple of 8, scales of 32 bits, and a g_idx that is not i / group_size.
absl::StatusOr<Int4Matrix> FindInt4(const Checkpoint& checkpoint,
                                    const v1::Quantization& quantization, std::string_view name,
                                    int64_t rows, int64_t columns);

// Inputs that share a scale in the rows of a slice of columns: the checkpoint's group, or a divisor
// of it, at most 128, whose multiples lie at the groups' ends. InvalidArgument, naming `name`,
// where that is less than 8.
absl::StatusOr<int64_t> Int4GroupSize(const v1::Quantization& quantization, std::string_view name,
                                      int64_t all_columns, const IndexRange& columns);

// Memory that reading takes; fresh memory costs more than a copy.
struct Int4Scratch {
  std::vector<std::byte> codes, zeros, scales;
};

// Reads rows and columns of the matrix to `out`: Int4RowBytes(columns.size(), group_size) a row.
// `group_size` is Int4GroupSize's. Fails where the file does, or a scale is not finite.
absl::Status ReadInt4Rows(const Int4Matrix& matrix, const IndexRange& rows,
                          const IndexRange& columns, int64_t group_size, Int4Scratch* scratch,
                          std::byte* out);

}  // namespace tessera::worker
