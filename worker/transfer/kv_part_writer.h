// Puts the pieces of one connection into the blocks that were kept for them: of each layer and head
// the tokens in order, each once. Where layers with a window have blocks of their own, a piece is
// of one layer. Anything else is refused by name, unwritten.
//
// A piece is a frame's payload: a uint32 with the length of a v1::KvPiece, it, then the elements
// (worker/transfer/kv_codec.h).
//
// Thread rule: one thread. Ownership: writes the pool's memory, which it does not own.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvcache/kv_layout.h"
#include "proto/worker.pb.h"
#include "worker/transfer/kv_coder.h"

namespace tessera::worker {

// Where a part of the KV of tokens [first, end) of a sequence goes.
struct KvPlaceOfPart {
  kvcache::KvPool pool;
  kvcache::KvShare part;  // of the pool's; of states, its kv heads are key groups
  v1::KvCodec codec = v1::KV_CODEC_RAW;
  std::vector<int32_t> table;  // blocks of the sequence
  int64_t first = 0;
  int64_t end = 0;
  // The same of layers with a window, where the pool has blocks for these: tokens before
  // window_first are not sent.
  std::vector<int32_t> window_table = {};
  int64_t window_first = 0;
  bool states = false;

  int64_t FirstOf(int32_t layer) const { return pool.IsWindowed(layer) ? window_first : first; }
};

// A piece as it comes.
struct KvFramedPiece {
  std::string_view header;  // a v1::KvPiece
  // What stands behind it; where it is on the pools' device, the host does not read it.
  std::string_view elements;
  bool on_device = false;
};
// InvalidArgument: cut short.
absl::StatusOr<KvFramedPiece> SplitPiece(std::string_view payload);

class KvPartWriter {
 public:
  // `coder` writes the pool; borrowed.
  explicit KvPartWriter(KvPlaceOfPart place, KvCoder* coder = &HostKvCoder());

  struct Piece {
    v1::KvPiece header;
    // Elements of the framed one.
    std::string_view elements;
    bool on_device = false;
  };
  // InvalidArgument: not a piece, or not one that is expected now.
  absl::StatusOr<Piece> Read(const KvFramedPiece& framed) const;
  // Writes the piece that Read gave last. An error: the coder's; the part is lost.
  absl::Status Write(const Piece& piece);

  bool complete() const { return missing_ == 0; }

 private:
  absl::Status Check(const v1::KvPiece& piece, int64_t bytes) const;
  // What the pool has as heads.
  const v1::Range& HeadsOf(const v1::KvPiece& piece) const;
  // Index into next_.
  int64_t At(int64_t layer, int64_t head) const;

  const KvPlaceOfPart place_;
  KvCoder* const coder_;
  std::vector<int64_t> next_;  // tokens, by layer and head
  int64_t missing_ = 0;        // layers times heads that are not complete
};

}  // namespace tessera::worker
