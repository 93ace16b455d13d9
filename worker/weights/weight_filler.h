// Reads pieces of a checkpoint to where they belong: packs rows of matrices, copies the rest.
//
// Thread rule: one call of Fill at a time; it takes threads of its own. Borrows what it is given.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "kernels/index_range.h"
#include "kernels/ops.h"
#include "kernels/tensor.h"
#include "worker/weights/row_source.h"

namespace tessera::worker {

// Rows and columns of a source, and their place in a matrix, vector or table.
struct WeightPiece {
  std::shared_ptr<const RowSource> source;
  RowForm form;  // what source reads as (RowSource::Read); kI4 only where `packed` is
  IndexRange rows;
  IndexRange columns;
  const kernels::PackedWeights* packed = nullptr;  // either this
  const kernels::TensorView* plain = nullptr;      // or this
  int64_t first = 0;                               // row or element in the target
  float added = 0;                                 // to each element of an f32 `plain`

  int64_t row_bytes() const { return RowBytes(form, columns.size()); }
  int64_t bytes() const { return rows.size() * row_bytes(); }
};

// Cuts pieces into parts, which several threads take in turn, so that none waits at the end of a
// tensor.
class WeightFiller {
 public:
  // Rows of a piece, numbered as its own are. With one thread of a piece in their order.
  using Done = std::function<void(const WeightPiece& piece, const IndexRange& rows)>;

  // `stream` copies what is not packed; null where everything is.
  WeightFiller(absl::Span<const WeightPiece> pieces, kernels::Ops* ops, kernels::Stream* stream);

  // `done` is called by one thread at a time. Of several failures the first part's is reported,
  // with file and tensor.
  absl::Status Fill(int host_threads, const Done& done);
  // From any thread: Fill returns Cancelled soon.
  void Stop() { stopped_ = true; }

 private:
  struct Part {
    const WeightPiece* piece = nullptr;
    IndexRange rows;  // of the source
  };
  struct Staging;

  void Cut(const WeightPiece& piece);
  void Work(const Done& done);
  absl::Status Fill(const Part& part, Staging* staging);
  static absl::Status Read(const Part& part, Staging* staging);
  absl::Status Pack(const Part& part, const Staging& staging);
  absl::Status Copy(const Part& part, Staging* staging);

  kernels::Ops* const ops_;
  kernels::Stream* const stream_;
  std::mutex stream_mutex_;
  std::vector<Part> parts_;
  int64_t largest_part_bytes_ = 1;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;  // over what follows, and `done`
  size_t failed_part_ = std::numeric_limits<size_t>::max();
  absl::Status failure_;
};

}  // namespace tessera::worker
