// Reads pieces of a checkpoint to where they belong: packs rows of matrices, copies the rest.
//
// Thread rule: one call of Fill at a time; it takes threads of its own. Borrows what it is given.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "kernels/tensor.h"
#include "worker/model/checkpoint.h"
#include "worker/model/index_range.h"
#include "worker/model/int4_matrix.h"

namespace tessera::worker {

// Rows and columns of one tensor, or of an int4 matrix, and their place in a matrix, vector or
// table.
struct WeightPiece {
  CheckpointTensor source;                        // of an int4 matrix its codes: for errors
  std::optional<Int4Matrix> int4 = std::nullopt;  // then `packed` is int4 too
  IndexRange rows;
  IndexRange columns;
  int64_t row_elements = 0;                        // of the whole tensor; int4: not used
  const kernels::PackedWeights* packed = nullptr;  // either this
  const kernels::TensorView* plain = nullptr;      // or this
  int64_t first = 0;                               // row or element in the target

  int64_t RowBytes() const;  // int4: as it is packed
  int64_t bytes() const { return rows.size() * RowBytes(); }
  // Not of int4. Of the first element in its file, between rows there, and from the first element
  // to the last.
  int64_t FileBegin() const;
  int64_t FileStride() const;
  int64_t FileSpan() const;
};

// Cuts pieces into parts, which several threads take in turn, so that none waits at the end of a
// tensor.
class WeightFiller {
 public:
  // Rows of a piece, numbered as its own are. With one thread of a piece in their order.
  using Done = std::function<void(const WeightPiece& piece, const IndexRange& rows)>;

  // `stream` copies what is not packed; null where everything is.
  WeightFiller(absl::Span<const WeightPiece> pieces, kernels::Ops* ops, kernels::Stream* stream);

  // `done` is called by one thread at a time. Of several failures the first part's is told, with
  // file and tensor.
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
