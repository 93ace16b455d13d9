// Matrices that are computed with as the checkpoint's files hold them, until a thread has packed
// them: a worker whose checkpoint is in the system's cache is ready at once, and fast soon after.
//
// Only what ops compute with unpacked (Ops::ComputesUnpacked) and the system has in memory can
// wait. Pages of the files are let go of some rows at a time, so that there is one copy of the
// weights always. Thread rule: one thread, which may be any.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/types/span.h"
#include "kernels/ops.h"
#include "worker/weights/file_mapping.h"
#include "worker/weights/weight_filler.h"

namespace tessera::worker {

class BackgroundPacking {
 public:
  // Takes the pieces of matrices that can wait out of `pieces`, and sets PackedWeights::unpacked of
  // these. Null if there are none. The matrices, `ops` and the pieces' files are borrowed, and must
  // outlive this, which must outlive every op that computes with the matrices.
  static std::unique_ptr<BackgroundPacking> Take(absl::Span<kernels::PackedWeights* const> matrices,
                                                 kernels::Ops* ops, int host_threads,
                                                 std::vector<WeightPiece>* pieces);
  // Stops where it is.
  ~BackgroundPacking();
  BackgroundPacking(const BackgroundPacking&) = delete;
  BackgroundPacking& operator=(const BackgroundPacking&) = delete;

  // Begins to pack on a thread of its own; without one, packs before it returns. A failure to read
  // is logged, and leaves what is not packed as it is. Once.
  void Start();
  // Bytes of the packed matrices whose memory is not in use yet.
  int64_t waiting_bytes() const { return waiting_bytes_; }

 private:
  explicit BackgroundPacking(kernels::Ops* ops) : ops_(ops) {}
  // Whether it can wait; its pieces then do.
  bool Add(const kernels::PackedWeights& target, const std::vector<WeightPiece>& pieces);
  const FileMapping* MappingOf(const SafetensorsFile* file);
  void TouchPages(int threads) const;
  void PackAll();
  void NotePacked(const WeightPiece& piece, const IndexRange& rows);
  void ReleasePages(const WeightPiece& piece) const;

  kernels::Ops* const ops_;
  std::map<const SafetensorsFile*, std::unique_ptr<FileMapping>> mappings_;
  std::map<const kernels::PackedWeights*, kernels::UnpackedRows> rows_;
  std::vector<WeightPiece> pieces_;     // matrix after matrix, by their rows
  std::optional<WeightFiller> filler_;  // of these
  std::atomic<int64_t> waiting_bytes_ = 0;
  std::thread thread_;
};

}  // namespace tessera::worker
