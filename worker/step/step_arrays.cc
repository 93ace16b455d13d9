#include "worker/step/step_arrays.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <iterator>

#include "kvcache/seat_pool.h"
#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

// Each array starts on a cache line.
int64_t Padded(int64_t elements) { return (elements + 15) / 16 * 16; }

int64_t ElementsBeforeTables(const StepLimits& limits) {
  return (limits.windows_apart ? 5 : 4) * Padded(limits.max_tokens) +
         Padded(limits.max_sequences + 1) + 3 * Padded(limits.max_sequences) +
         Padded(limits.max_logit_rows);
}

int64_t TableElements(const StepLimits& limits) {
  const auto widest = std::bit_ceil(static_cast<uint64_t>(limits.max_blocks_per_sequence));
  return limits.max_sequences * static_cast<int64_t>(widest);
}

absl::Status Wrong(const char* field, int64_t value, int64_t least, int64_t most) {
  return absl::InvalidArgumentError(StrCat("step descriptor: ", field, " is ", value,
                                           "; it must be between ", least, " and ", most));
}

}  // namespace

int64_t PaddedRows(int64_t rows) {
  if (rows <= 4) return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows)));
  const int64_t step = rows <= 64 ? 8 : 32;
  return (rows + step - 1) / step * step;
}

int64_t StepArrays::Elements(const StepLimits& limits) {
  return ElementsBeforeTables(limits) + (limits.windows_apart ? 2 : 1) * TableElements(limits);
}

StepArrays::StepArrays(const StepLimits& limits) : limits_(limits), memory_(Elements(limits)) {
  int32_t* at = memory_.data();
  const auto take = [&at](int64_t elements) {
    int32_t* array = at;
    at += Padded(elements);
    return array;
  };
  token_ids_ = take(limits.max_tokens);
  positions_ = take(limits.max_tokens);
  rope_lengths_ = take(limits.max_tokens);
  slots_ = take(limits.max_tokens);
  query_starts_ = take(limits.max_sequences + 1);
  context_lengths_ = take(limits.max_sequences);
  logit_rows_ = take(limits.max_logit_rows);
  seats_ = take(limits.max_sequences);
  draft_rows_ = take(limits.max_sequences);
  window_slots_ = limits.windows_apart ? take(limits.max_tokens) : nullptr;
  block_tables_ = at;
  window_tables_ = limits.windows_apart ? at + TableElements(limits) : nullptr;
  widths_.reserve(limits.max_sequences);
  seat_owners_.reserve(limits.max_sequences);
  next_ids_.reserve(limits.max_sequences);
  flat_tables_.reserve(limits.max_sequences);
}

void StepArrays::Begin() {
  rows_ = 0;
  logit_count_ = 0;
  fed_rows_ = 0;
  table_width_ = 1;
  widths_.clear();
  seat_owners_.clear();
  next_ids_.clear();
  has_seats_ = false;
  has_drafts_ = false;
  flat_tables_.clear();
  flat_window_tables_.clear();
  windows_apart_ = false;
  query_starts_[0] = 0;
}

int32_t StepArrays::AddSequence(const SequenceRows& sequence) {
  assert(rows_ + sequence.rows <= limits_.max_tokens);
  assert(sequences() < limits_.max_sequences);
  const int32_t first_row = static_cast<int32_t>(rows_);
  windows_apart_ = sequence.window_blocks != nullptr;
  assert(!windows_apart_ || limits_.windows_apart);
  for (int64_t i = 0; i < sequence.rows; ++i, ++rows_) {
    const int64_t position = sequence.first + i;
    const int64_t drafted = i - (sequence.rows - std::ssize(sequence.drafts));
    const bool fed = drafted < 0 && position >= std::ssize(sequence.tokens);
    token_ids_[rows_] = drafted >= 0 ? sequence.drafts[drafted]
                        : fed        ? kernels::kFedToken - sequence.fed_draw
                                     : sequence.tokens[position];
    fed_rows_ += fed ? 1 : 0;
    positions_[rows_] = static_cast<int32_t>(position);
    rope_lengths_[rows_] =
        static_cast<int32_t>(std::max<int64_t>(sequence.prompt_tokens, position + 1));
    slots_[rows_] = sequence.blocks->Slot(position);
    if (windows_apart_) window_slots_[rows_] = sequence.window_blocks->Slot(position);
  }
  seats_[widths_.size()] = sequence.seat;
  draft_rows_[widths_.size()] = static_cast<int32_t>(sequence.drafts.size());
  has_drafts_ = has_drafts_ || !sequence.drafts.empty();
  seat_owners_.push_back(sequence.seat_owner);
  const int64_t next = sequence.first + sequence.rows - std::ssize(sequence.drafts);
  next_ids_.push_back(next < std::ssize(sequence.tokens) ? sequence.tokens[next] : -1);
  has_seats_ = has_seats_ || sequence.seat >= 0;
  context_lengths_[widths_.size()] = static_cast<int32_t>(sequence.first + sequence.rows);
  const std::vector<int32_t>& blocks = sequence.blocks->blocks();
  flat_tables_.insert(flat_tables_.end(), blocks.begin(), blocks.end());
  if (windows_apart_) {
    const std::vector<int32_t>& window_blocks = sequence.window_blocks->blocks();
    assert(window_blocks.size() == blocks.size());
    flat_window_tables_.insert(flat_window_tables_.end(), window_blocks.begin(),
                               window_blocks.end());
  }
  widths_.push_back(static_cast<int32_t>(blocks.size()));
  query_starts_[widths_.size()] = static_cast<int32_t>(rows_);
  return first_row;
}

int32_t StepArrays::AddLogitRow(int32_t row) {
  assert(logit_count_ < limits_.max_logit_rows);
  logit_rows_[logit_count_] = row;
  return static_cast<int32_t>(logit_count_++);
}

void StepArrays::Seal() {
  int32_t widest = 1;
  for (const int32_t width : widths_) widest = std::max(widest, width);
  table_width_ = static_cast<int64_t>(std::bit_ceil(static_cast<uint32_t>(widest)));
  LayOut(flat_tables_, block_tables_);
  if (windows_apart_) LayOut(flat_window_tables_, window_tables_);
  bool one = false, few = false, many = false;
  for (int64_t i = 0; i < sequences(); ++i) {
    const int32_t rows = query_starts_[i + 1] - query_starts_[i];
    one = one || rows == 1;
    few = few || (rows > 1 && rows <= kernels::kFewSequenceRows);
    many = many || rows > kernels::kFewSequenceRows;
  }
  using enum kernels::RowsPerSequence;
  rows_per_sequence_ = few ? kAny : !many ? kOne : one ? kOneOrMany : kMany;
  Pad();
}

void StepArrays::LayOut(const std::vector<int32_t>& tables, int32_t* to) const {
  const int32_t* blocks = tables.data();
  for (int64_t i = 0; i < sequences(); ++i) {
    int32_t* row = to + i * table_width_;
    // A block that is freed, and so not read, is any one.
    int32_t* const end = std::transform(blocks, blocks + widths_[i], row,
                                        [](int32_t block) { return std::max(0, block); });
    std::fill(end, row + table_width_, 0);
    blocks += widths_[i];
  }
}

// A padded row is no token, stands in no block and belongs to no sequence (kernels/ops.h).
void StepArrays::Pad() {
  padded_ = extents();
  const int64_t most =
      std::min({limits_.max_tokens, limits_.max_sequences, limits_.max_logit_rows});
  const bool single = rows_ > 0 && sequences() == rows_ && logit_count_ == rows_;
  const int64_t rows = single ? PaddedRows(rows_) : 0;
  if (rows == 0 || rows > most) return;
  padded_ = {rows, rows, rows};
  std::fill(token_ids_ + rows_, token_ids_ + rows, -1);
  std::fill(positions_ + rows_, positions_ + rows, -1);
  std::fill(rope_lengths_ + rows_, rope_lengths_ + rows, 1);
  std::fill(slots_ + rows_, slots_ + rows, -1);
  if (windows_apart_) {
    std::fill(window_slots_ + rows_, window_slots_ + rows, -1);
    std::fill(window_tables_ + rows_ * table_width_, window_tables_ + rows * table_width_, 0);
  }
  std::fill(query_starts_ + rows_ + 1, query_starts_ + rows + 1, static_cast<int32_t>(rows_));
  std::fill(context_lengths_ + rows_, context_lengths_ + rows, 0);
  std::fill(logit_rows_ + rows_, logit_rows_ + rows, -1);
  std::fill(seats_ + rows_, seats_ + rows, -1);
  std::fill(draft_rows_ + rows_, draft_rows_ + rows, 0);
  std::fill(block_tables_ + rows_ * table_width_, block_tables_ + rows * table_width_, 0);
}

absl::Status StepArrays::CheckCounts(const Columns& columns, KvBlocks kv) const {
  const auto rows = static_cast<int64_t>(columns.token_ids.size());
  const auto sequences = static_cast<int64_t>(columns.context_lengths.size());
  const auto logits = static_cast<int64_t>(columns.logit_rows.size());
  if (rows > limits_.max_tokens) return Wrong("token_ids", rows, 0, limits_.max_tokens);
  if (sequences > limits_.max_sequences) {
    return Wrong("context_lengths", sequences, 0, limits_.max_sequences);
  }
  if (logits > limits_.max_logit_rows)
    return Wrong("logit_rows", logits, 0, limits_.max_logit_rows);
  const struct {
    const char* field;
    size_t size;
    int64_t wanted;
  } counts[] = {
      {"positions", columns.positions.size(), rows},
      {"rope_lengths", columns.rope_lengths.size(), rows},
      {"slots", columns.slots.size(), rows},
      {"query_starts", columns.query_starts.size(), sequences + 1},
      {"block_table_widths", columns.table_widths.size(), sequences},
      {"seats", columns.seats.size(), columns.seats.empty() ? 0 : sequences},
      {"seat_owners", columns.seat_owners.size(), static_cast<int64_t>(columns.seats.size())},
      {"draft_rows", columns.draft_rows.size(), columns.draft_rows.empty() ? 0 : sequences},
      {"next_ids", columns.next_ids.size(), columns.next_ids.empty() ? 0 : sequences},
      {"window_slots", columns.window_slots.size(), kv.window > 0 ? rows : 0},
      {"window_block_tables", columns.window_tables.size(),
       kv.window > 0 ? static_cast<int64_t>(columns.tables.size()) : 0}};
  for (const auto& count : counts) {
    if (static_cast<int64_t>(count.size) == count.wanted) continue;
    return Wrong(count.field, static_cast<int64_t>(count.size), count.wanted, count.wanted);
  }
  int64_t blocks = 0;
  for (const int32_t width : columns.table_widths) {
    if (width < 0 || width > limits_.max_blocks_per_sequence) {
      return Wrong("block_table_widths", width, 0, limits_.max_blocks_per_sequence);
    }
    blocks += width;
  }
  if (blocks != static_cast<int64_t>(columns.tables.size())) {
    return Wrong("block_tables", static_cast<int64_t>(columns.tables.size()), blocks, blocks);
  }
  return absl::OkStatus();
}

absl::Status StepArrays::CheckIndices(const Columns& columns, KvBlocks kv,
                                      int64_t block_tokens) const {
  const auto rows = static_cast<int32_t>(columns.token_ids.size());
  int32_t start = 0;
  for (const int32_t next : columns.query_starts) {
    if (next < start || next > rows) return Wrong("query_starts", next, start, rows);
    start = next;
  }
  if (columns.query_starts.front() != 0 || start != rows) {
    return absl::InvalidArgumentError("step descriptor: query_starts do not cover its rows");
  }
  for (const int32_t row : columns.logit_rows) {
    if (row < 0 || row >= rows) return Wrong("logit_rows", row, 0, rows - 1);
  }
  const struct {
    const char* field;
    std::span<const int32_t> values;
    int64_t least;
    int64_t end;
  } places[] = {{"slots", columns.slots, -1, kv.common * block_tokens},
                {"block_tables", columns.tables, 0, kv.common},
                {"window_slots", columns.window_slots, -1, kv.window * block_tokens},
                {"window_block_tables", columns.window_tables, -1, kv.window}};
  for (const auto& [field, values, least, end] : places) {
    for (const int32_t value : values) {
      if (value < least || value >= end) return Wrong(field, value, least, end - 1);
    }
  }
  for (size_t i = 0; i < columns.context_lengths.size(); ++i) {
    const int64_t most = columns.table_widths[i] * block_tokens;
    const int32_t length = columns.context_lengths[i];
    if (length < 0 || length > most) return Wrong("context_lengths", length, 0, most);
    if (columns.draft_rows.empty()) continue;
    const int32_t sequence_rows = columns.query_starts[i + 1] - columns.query_starts[i];
    const int32_t drafts = columns.draft_rows[i];
    if (drafts < 0 || drafts > std::max(0, sequence_rows - 1)) {
      return Wrong("draft_rows", drafts, 0, std::max(0, sequence_rows - 1));
    }
  }
  return absl::OkStatus();
}

absl::Status StepArrays::Assign(const Columns& columns, KvBlocks kv, int64_t block_tokens) {
  absl::Status status = CheckCounts(columns, kv);
  if (status.ok()) status = CheckIndices(columns, kv, block_tokens);
  if (!status.ok()) return status;
  Begin();
  rows_ = static_cast<int64_t>(columns.token_ids.size());
  logit_count_ = static_cast<int64_t>(columns.logit_rows.size());
  std::copy(columns.token_ids.begin(), columns.token_ids.end(), token_ids_);
  fed_rows_ = std::count_if(columns.token_ids.begin(), columns.token_ids.end(),
                            [](int32_t id) { return id <= kernels::kFedToken; });
  std::copy(columns.positions.begin(), columns.positions.end(), positions_);
  std::copy(columns.rope_lengths.begin(), columns.rope_lengths.end(), rope_lengths_);
  std::copy(columns.slots.begin(), columns.slots.end(), slots_);
  std::copy(columns.query_starts.begin(), columns.query_starts.end(), query_starts_);
  std::copy(columns.context_lengths.begin(), columns.context_lengths.end(), context_lengths_);
  std::copy(columns.logit_rows.begin(), columns.logit_rows.end(), logit_rows_);
  widths_.assign(columns.table_widths.begin(), columns.table_widths.end());
  has_seats_ = !columns.seats.empty();
  std::fill(seats_, seats_ + sequences(), kvcache::Seat::kNone);
  std::copy(columns.seats.begin(), columns.seats.end(), seats_);
  has_drafts_ = !columns.draft_rows.empty();
  std::fill(draft_rows_, draft_rows_ + sequences(), 0);
  std::copy(columns.draft_rows.begin(), columns.draft_rows.end(), draft_rows_);
  seat_owners_.assign(columns.seat_owners.begin(), columns.seat_owners.end());
  seat_owners_.resize(widths_.size());
  next_ids_.assign(columns.next_ids.begin(), columns.next_ids.end());
  next_ids_.resize(widths_.size(), -1);
  flat_tables_.assign(columns.tables.begin(), columns.tables.end());
  windows_apart_ = kv.window > 0;
  if (windows_apart_) {
    std::copy(columns.window_slots.begin(), columns.window_slots.end(), window_slots_);
    flat_window_tables_.assign(columns.window_tables.begin(), columns.window_tables.end());
  }
  Seal();
  return absl::OkStatus();
}

}  // namespace tessera::worker
