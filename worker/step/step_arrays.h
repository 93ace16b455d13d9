// The rows of one step as host arrays: what a leader builds, sends to the other workers of its
// replica, and every worker copies to its device (worker/step/step_inputs.h).
//
// All arrays lie in one piece of memory whose layout depends on StepLimits alone, so that a device
// copy of equal layout has them at fixed addresses. Block tables are as wide as the widest of the
// step needs, rounded up to a power of two, so that few distinct shapes occur.
//
// Thread rule: one thread. Everything is allocated by the constructor, sized by StepLimits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kvcache/block_pool.h"
#include "worker/model/model.h"

namespace tessera::worker {

// 1, 2, 4, then every 8 up to 64, then every 32: at least `rows`.
int64_t PaddedRows(int64_t rows);

// One sequence's part of a step.
struct SequenceRows {
  std::span<const int32_t> tokens;  // all known ones, prompt first
  int64_t prompt_tokens = 0;
  int64_t first = 0;  // position of its first row
  int64_t rows = 0;
  const kvcache::BlockTable* blocks = nullptr;  // has room for first + rows tokens
  // The same of layers with a window, where these have blocks of their own; then all sequences have
  // it. What the rows do not see may be freed.
  const kvcache::BlockTable* window_blocks = nullptr;
  // Tokens that are tried behind `tokens`: the last of its rows.
  std::span<const int32_t> drafts = {};
  // Which draw of the step before this one gives the token behind `tokens`, if it has a row here:
  // the device takes it from there (kernels::FeedTokensArgs).
  int32_t fed_draw = 0;
  // Where what layers keep of the sequence stands (kvcache/seat_pool.h); -1: they keep nothing.
  int32_t seat = -1;
  uint64_t seat_owner = 0;
};

class StepArrays {
 public:
  explicit StepArrays(const StepLimits& limits);
  StepArrays(const StepArrays&) = delete;
  StepArrays& operator=(const StepArrays&) = delete;

  // Starts an empty step.
  void Begin();
  // Returns the index of the sequence's first row. The caller keeps within the limits.
  int32_t AddSequence(const SequenceRows& sequence);
  // Asks for the logits of `row`; they stand at the index returned.
  int32_t AddLogitRow(int32_t row);
  // Lays out the block tables, and rows behind those of a step that can be padded; after the last
  // sequence.
  void Seal();

  // The whole step at once, as another worker built it; sealed. InvalidArgument, naming the field,
  // where counts do not agree or exceed the limits, or an index points outside the step or the KV
  // pool, which has `kv`.
  struct Columns {
    std::span<const int32_t> token_ids, positions, rope_lengths, slots;  // [rows]
    std::span<const int32_t> query_starts;                               // [sequences + 1]
    std::span<const int32_t> context_lengths;                            // [sequences]
    std::span<const int32_t> table_widths;  // [sequences]: blocks of each
    std::span<const int32_t> tables;        // [sum of table_widths]
    std::span<const int32_t> logit_rows;
    std::span<const int32_t> seats = {};         // [sequences], or none: they have no seats
    std::span<const uint64_t> seat_owners = {};  // as seats
    std::span<const int32_t> draft_rows = {};    // [sequences], or none: there are no drafts
    std::span<const int32_t> next_ids = {};      // [sequences], or none: none is known
    // As slots and tables, of layers with a window, where the pool has blocks for these; else none.
    std::span<const int32_t> window_slots = {}, window_tables = {};
  };
  absl::Status Assign(const Columns& columns, KvBlocks kv, int64_t block_tokens);

  int64_t rows() const { return rows_; }
  int64_t sequences() const { return static_cast<int64_t>(widths_.size()); }
  int64_t logit_count() const { return logit_count_; }
  int64_t fed_rows() const { return fed_rows_; }  // whose tokens the step before draws
  // After Seal.
  kernels::RowsPerSequence rows_per_sequence() const { return rows_per_sequence_; }
  int64_t table_width() const { return table_width_; }  // of the padded tables, after Seal

  // The arrays in use. Sequence i's blocks are the first table_widths()[i] of its row.
  std::span<const int32_t> token_ids() const { return Used(token_ids_, rows_); }
  std::span<const int32_t> positions() const { return Used(positions_, rows_); }
  std::span<const int32_t> rope_lengths() const { return Used(rope_lengths_, rows_); }
  std::span<const int32_t> slots() const { return Used(slots_, rows_); }
  // Whether layers with a window have blocks of their own; then their slots and tables.
  bool windows_apart() const { return windows_apart_; }
  std::span<const int32_t> window_slots() const { return Used(window_slots_, rows_); }
  std::span<const int32_t> padded_window_tables() const {
    return Used(window_tables_, sequences() * table_width_);
  }
  std::span<const int32_t> query_starts() const { return Used(query_starts_, sequences() + 1); }
  std::span<const int32_t> context_lengths() const { return Used(context_lengths_, sequences()); }
  std::span<const int32_t> seats() const { return Used(seats_, sequences()); }
  std::span<const uint64_t> seat_owners() const { return seat_owners_; }
  // Last rows of each sequence that are tried: what layers keep of it stands before them.
  std::span<const int32_t> draft_rows() const { return Used(draft_rows_, sequences()); }
  bool has_drafts() const { return has_drafts_; }  // any sequence
  // The token behind each sequence's last row that is no draft; -1: not known yet.
  std::span<const int32_t> next_ids() const { return next_ids_; }
  bool has_seats() const { return has_seats_; }  // any sequence
  std::span<const int32_t> logit_rows() const { return Used(logit_rows_, logit_count_); }
  std::span<const int32_t> table_widths() const { return widths_; }
  std::span<const int32_t> tables() const {
    return flat_tables_;
  }  // one after the other, no padding
  std::span<const int32_t> window_tables() const { return flat_window_tables_; }  // the same
  std::span<const int32_t> padded_tables() const {
    return Used(block_tables_, sequences() * table_width_);
  }

  // The same step with rows behind it that compute nothing anyone reads, so that few distinct
  // counts occur: where each sequence has one row, and that row's logits are asked for, its rows
  // rounded up by PaddedRows, as far as the limits allow. Else as it is. After Seal.
  struct Extents {
    int64_t rows = 0, sequences = 0, logit_rows = 0;
  };
  Extents extents() const { return {rows_, sequences(), logit_count_}; }
  Extents padded_extents() const { return padded_; }

  // The memory of all arrays, in elements: everything before the tables in one piece, then the
  // tables of each kind.
  std::span<const int32_t> memory() const { return memory_; }
  std::span<const int32_t> before_tables() const {
    return Used(memory_.data(), block_tables_ - memory_.data());
  }
  static int64_t Elements(const StepLimits& limits);

 private:
  static std::span<const int32_t> Used(const int32_t* array, int64_t count) {
    return {array, static_cast<size_t>(count)};
  }
  void Pad();
  absl::Status CheckCounts(const Columns& columns, KvBlocks kv) const;
  absl::Status CheckIndices(const Columns& columns, KvBlocks kv, int64_t block_tokens) const;

  // Rows of the padded tables at `to` from widths_ and `blocks`, one table after the other.
  void LayOut(const std::vector<int32_t>& blocks, int32_t* to) const;

  const StepLimits limits_;
  std::vector<int32_t> memory_;
  int32_t* token_ids_;
  int32_t* positions_;
  int32_t* rope_lengths_;
  int32_t* slots_;
  int32_t* query_starts_;
  int32_t* context_lengths_;
  int32_t* logit_rows_;
  int32_t* seats_;
  int32_t* draft_rows_;
  int32_t* window_slots_;  // null where limits_ has no windows apart
  int32_t* block_tables_;
  int32_t* window_tables_;  // as window_slots_
  std::vector<uint64_t> seat_owners_;
  std::vector<int32_t> next_ids_;
  std::vector<int32_t> widths_;
  std::vector<int32_t> flat_tables_;
  std::vector<int32_t> flat_window_tables_;  // as wide as flat_tables_
  int64_t rows_ = 0;
  int64_t logit_count_ = 0;
  int64_t fed_rows_ = 0;
  int64_t table_width_ = 1;
  bool windows_apart_ = false;
  bool has_seats_ = false;
  bool has_drafts_ = false;
  kernels::RowsPerSequence rows_per_sequence_ = kernels::RowsPerSequence::kAny;
  Extents padded_;
};

}  // namespace tessera::worker
