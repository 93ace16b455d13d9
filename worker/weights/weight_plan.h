// What to read from a checkpoint and where to put it: collected first (memory is counted before the
// first byte is read), then carried out.
//
// Thread rule: one thread; Execute takes as many more as the device has for the host. Targets given
// to Add* must stay at their addresses until Execute ends.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "kernels/tensor.h"
#include "worker/weights/arena.h"
#include "worker/weights/background_packing.h"
#include "worker/weights/row_source.h"
#include "worker/weights/weight_filler.h"

namespace tessera::worker {

// Part of a source.
struct RowSlice {
  std::shared_ptr<const RowSource> source;
  IndexRange rows;
  IndexRange columns;
};

class WeightPlan {
 public:
  // `ops` packs; it is borrowed.
  explicit WeightPlan(kernels::Ops* ops) : ops_(ops) {}

  // Memory for a matrix of `spec`; its rows are added by AddRows, piece by piece.
  void AddMatrix(kernels::PackedWeights* target, const kernels::LinearSpec& spec);
  // The slice becomes rows [first_row, ...) of the target, read as `form` (RowSource::Read): int4
  // needs a target of int4 with the same groups.
  void AddRows(const kernels::PackedWeights* target, int64_t first_row, const RowSlice& slice,
               const RowForm& form);
  // Memory for `size` floats; parts are added by AddVectorPart (norms and biases are f32 always).
  void AddVector(kernels::TensorView* target, int64_t size);
  // `added` to each element.
  absl::Status AddVectorPart(const kernels::TensorView* target, int64_t first,
                             const RowSlice& slice, float added = 0);
  // Rows of a table that is looked up, in its own type, codes as f32; f32 becomes bf16 where
  // `compact`.
  absl::Status AddTable(kernels::TensorView* target, const RowSlice& slice, bool compact);

  struct Loaded {
    kernels::Buffer memory;
    std::unique_ptr<BackgroundPacking> later;  // null: all is packed
  };
  // Allocates and fills, with `pack_later` only what cannot wait. `progress(bytes_done,
  // bytes_total)` counts bytes of the checkpoint; any of the threads calls it, one at a time.
  absl::StatusOr<Loaded> Execute(kernels::Device& device, bool pack_later,
                                 const std::function<void(int64_t, int64_t)>& progress);

 private:
  void AddPlain(const kernels::TensorView* target, int64_t first, const RowSlice& slice,
                const RowForm& form, float added);

  kernels::Ops* ops_;
  Arena arena_;
  std::vector<kernels::PackedWeights*> matrices_;
  std::vector<WeightPiece> pieces_;
};

}  // namespace tessera::worker
