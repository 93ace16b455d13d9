// What to read from a checkpoint and where to put it: collected first (every tensor is looked up,
// its shape checked and memory counted before the first byte is read), then carried out.
//
// Thread rule: one thread; Execute takes as many more as the device has for the host. Targets given
// to Add* must stay at their addresses until Execute ends.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "kernels/tensor.h"
#include "proto/model.pb.h"
#include "worker/model/arena.h"
#include "worker/model/checkpoint.h"
#include "worker/model/later_packing.h"
#include "worker/model/weight_filler.h"

namespace tessera::worker {

// Part of a matrix in the checkpoint: [rows, columns] is its whole shape.
struct MatrixSlice {
  std::string_view name;
  int64_t rows = 0;
  int64_t columns = 0;
  IndexRange row_span;
  IndexRange column_span;
};

MatrixSlice WholeMatrix(std::string_view name, int64_t rows, int64_t columns);
MatrixSlice MatrixRows(std::string_view name, int64_t rows, int64_t columns, IndexRange span);
MatrixSlice MatrixColumns(std::string_view name, int64_t rows, int64_t columns, IndexRange span);

class WeightPlan {
 public:
  // `ops` packs; both are borrowed.
  WeightPlan(const Checkpoint* checkpoint, kernels::Ops* ops);

  // Memory for a matrix of `spec`; its rows are added by AddRows, piece by piece.
  void AddMatrix(kernels::PackedWeights* target, const kernels::LinearSpec& spec);
  // The slice becomes rows [first_row, ...) of the target.
  absl::Status AddRows(const kernels::PackedWeights* target, int64_t first_row,
                       const MatrixSlice& slice);
  // The same of an int4 matrix; `slice.name` is without ".qweight". `quantization` is borrowed.
  absl::Status AddInt4Rows(const kernels::PackedWeights* target, int64_t first_row,
                           const v1::Quantization& quantization, const MatrixSlice& slice);
  // Memory for `size` floats; parts are added by AddVectorPart (norms and biases are f32 always).
  void AddVector(kernels::TensorView* target, int64_t size);
  absl::Status AddVectorPart(const kernels::TensorView* target, int64_t first,
                             std::string_view name, int64_t size, IndexRange span);
  // Rows of a table that is looked up, in its own type; f32 becomes bf16 where `compact`.
  absl::Status AddTable(kernels::TensorView* target, const MatrixSlice& slice, bool compact);

  struct Loaded {
    kernels::Buffer memory;
    std::unique_ptr<LaterPacking> later;  // null: all is packed
  };
  // Allocates and fills, with `pack_later` only what cannot wait. `progress(bytes_done,
  // bytes_total)` counts bytes of the checkpoint; any of the threads calls it, one at a time.
  absl::StatusOr<Loaded> Execute(kernels::Device& device, bool pack_later,
                                 const std::function<void(int64_t, int64_t)>& progress);

 private:
  const Checkpoint* checkpoint_;
  kernels::Ops* ops_;
  Arena arena_;
  std::vector<kernels::PackedWeights*> matrices_;
  std::vector<WeightPiece> pieces_;
};

}  // namespace tessera::worker
