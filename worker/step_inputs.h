// Turns the sequences of one step into the device tensors of StepInputs (worker/model.h).
//
// Rows are collected in host staging and copied by two enqueued copies: everything but the block
// tables in one piece, then the block tables. Device tensors stay at fixed addresses; block tables
// are as wide as the widest of the step needs, rounded up to a power of two, so that few distinct
// shapes occur.
//
// Thread rule: one thread (the engine's). Begin may be called again only after the stream has
// passed the copies of the step before. Everything is allocated by Create, sized by StepLimits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kvcache/block_pool.h"
#include "worker/model.h"

namespace tessera::worker {

// One sequence's part of a step.
struct SequenceRows {
  std::span<const int32_t> tokens;  // all known ones, prompt first
  int64_t prompt_tokens = 0;
  int64_t first = 0;  // position of its first row
  int64_t rows = 0;
  const kvcache::BlockTable* blocks = nullptr;  // has room for first + rows tokens
};

class StepBuilder {
 public:
  static absl::StatusOr<std::unique_ptr<StepBuilder>> Create(const StepLimits& limits,
                                                             kernels::Device& device);

  // Starts an empty step.
  void Begin();
  // Returns the index of the sequence's first row. The caller keeps within the limits.
  int32_t AddSequence(const SequenceRows& sequence);
  // Asks for the logits of `row`; they stand at the index returned.
  int32_t AddLogitRow(int32_t row);

  int64_t rows() const { return rows_; }
  // Enqueues the copies. Views hold until the next Begin.
  absl::StatusOr<StepInputs> Finish(kernels::Stream& stream);

  int64_t device_bytes() const { return device_memory_.size_bytes(); }

 private:
  StepBuilder(const StepLimits& limits, kernels::Buffer device_memory);
  kernels::TensorView View(const int32_t* host, int64_t count) const;

  StepLimits limits_;
  std::vector<int32_t> host_;  // the arrays below, then the block tables, as on the device
  kernels::Buffer device_memory_;
  int32_t* token_ids_;
  int32_t* positions_;
  int32_t* rope_lengths_;
  int32_t* slots_;
  int32_t* query_starts_;
  int32_t* context_lengths_;
  int32_t* logit_rows_;
  int32_t* block_tables_;
  std::vector<const kvcache::BlockTable*> tables_;
  int64_t rows_ = 0;
  int64_t logit_count_ = 0;
};

}  // namespace tessera::worker
