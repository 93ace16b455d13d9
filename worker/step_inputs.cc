#include "worker/step_inputs.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace tessera::worker {
namespace {

// Each array starts on a cache line.
int64_t Padded(int64_t elements) { return (elements + 15) / 16 * 16; }

int64_t ElementsBeforeTables(const StepLimits& limits) {
  return 4 * Padded(limits.max_tokens) + Padded(limits.max_sequences + 1) +
         Padded(limits.max_sequences) + Padded(limits.max_logit_rows);
}

int64_t TableElements(const StepLimits& limits) {
  const auto widest = std::bit_ceil(static_cast<uint64_t>(limits.max_blocks_per_sequence));
  return limits.max_sequences * static_cast<int64_t>(widest);
}

}  // namespace

absl::StatusOr<std::unique_ptr<StepBuilder>> StepBuilder::Create(const StepLimits& limits,
                                                                 kernels::Device& device) {
  auto memory =
      device.Allocate((ElementsBeforeTables(limits) + TableElements(limits)) * sizeof(int32_t));
  if (!memory.ok()) return memory.status();
  return std::unique_ptr<StepBuilder>(new StepBuilder(limits, *std::move(memory)));
}

StepBuilder::StepBuilder(const StepLimits& limits, kernels::Buffer device_memory)
    : limits_(limits),
      host_(ElementsBeforeTables(limits) + TableElements(limits)),
      device_memory_(std::move(device_memory)) {
  int32_t* at = host_.data();
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
  block_tables_ = at;
  tables_.reserve(limits.max_sequences);
}

void StepBuilder::Begin() {
  rows_ = 0;
  logit_count_ = 0;
  tables_.clear();
  query_starts_[0] = 0;
}

int32_t StepBuilder::AddSequence(const SequenceRows& sequence) {
  assert(rows_ + sequence.rows <= limits_.max_tokens);
  assert(static_cast<int64_t>(tables_.size()) < limits_.max_sequences);
  const int32_t first_row = static_cast<int32_t>(rows_);
  for (int64_t i = 0; i < sequence.rows; ++i, ++rows_) {
    const int64_t position = sequence.first + i;
    token_ids_[rows_] = sequence.tokens[position];
    positions_[rows_] = static_cast<int32_t>(position);
    rope_lengths_[rows_] =
        static_cast<int32_t>(std::max<int64_t>(sequence.prompt_tokens, position + 1));
    slots_[rows_] = sequence.blocks->Slot(position);
  }
  context_lengths_[tables_.size()] = static_cast<int32_t>(sequence.first + sequence.rows);
  tables_.push_back(sequence.blocks);
  query_starts_[tables_.size()] = static_cast<int32_t>(rows_);
  return first_row;
}

int32_t StepBuilder::AddLogitRow(int32_t row) {
  assert(logit_count_ < limits_.max_logit_rows);
  logit_rows_[logit_count_] = row;
  return static_cast<int32_t>(logit_count_++);
}

kernels::TensorView StepBuilder::View(const int32_t* host, int64_t count) const {
  std::byte* data = device_memory_.data() + (host - host_.data()) * sizeof(int32_t);
  return kernels::TensorView(data, kernels::DType::kI32, {count});
}

absl::StatusOr<StepInputs> StepBuilder::Finish(kernels::Stream& stream) {
  const int64_t sequences = static_cast<int64_t>(tables_.size());
  size_t widest = 1;
  for (const auto* table : tables_) widest = std::max(widest, table->blocks().size());
  const int64_t width = static_cast<int64_t>(std::bit_ceil(widest));
  for (int64_t i = 0; i < sequences; ++i) {
    const std::vector<int32_t>& blocks = tables_[i]->blocks();
    int32_t* row = block_tables_ + i * width;
    std::fill(std::copy(blocks.begin(), blocks.end(), row), row + width, 0);
  }
  StepInputs step;
  step.token_ids = View(token_ids_, rows_);
  step.positions = View(positions_, rows_);
  step.rope_lengths = View(rope_lengths_, rows_);
  step.slots = View(slots_, rows_);
  step.query_starts = View(query_starts_, sequences + 1);
  step.context_lengths = View(context_lengths_, sequences);
  step.logit_rows = View(logit_rows_, logit_count_);
  step.block_tables =
      kernels::TensorView(View(block_tables_, 0).data, kernels::DType::kI32, {sequences, width});
  const int64_t before_tables = block_tables_ - host_.data();
  absl::Status status =
      stream.CopyToDevice(device_memory_.data(), host_.data(), before_tables * sizeof(int32_t));
  if (!status.ok()) return status;
  status = stream.CopyToDevice(step.block_tables.data, block_tables_,
                               sequences * width * sizeof(int32_t));
  if (!status.ok()) return status;
  return step;
}

}  // namespace tessera::worker
