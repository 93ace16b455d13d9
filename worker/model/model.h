// The transformer forward pass of one worker: embedding (first stage), a consecutive range of
// layers, final norm and head (last stage), written only in kernels/ops.h. What this worker holds
// is read from its v1::WorkerShare: plain ranges of layers, heads, ffn columns, vocabulary rows and
// experts.
//
// Thread rule: one thread (the engine's). Ownership: borrows the Device, owns weights and
// activations; KV memory belongs to the caller. Everything is allocated by Load; Forward allocates
// nothing and enqueues on one stream.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/collectives/group.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "kernels/tensor.h"
#include "proto/layers/kv_sizes.h"
#include "worker/weights/model_options.h"

namespace tessera::worker {

// Hears of a step while it runs, on a thread of its stream; the stream waits for it.
class KvWriteListener {
 public:
  virtual ~KvWriteListener() = default;
  // The step's keys and values of this layer, counted from the share's first one, are in the pool.
  virtual void OnLayerWritten(int64_t index) = 0;
};

// One step, as device tensors at fixed addresses. Rows beyond the batch are padding.
struct StepInputs {
  kernels::TensorView token_ids;  // [tokens] i32; -1 pads
  kernels::TensorView positions;  // [tokens] i32; absolute
  kernels::TensorView
      rope_lengths;  // [tokens] i32; max(prompt length, position + 1) of the token's sequence
  kernels::TensorView slots;            // [tokens] i32; where this row's key and value go; -1 pads
  kernels::TensorView query_starts;     // [sequences + 1] i32
  kernels::TensorView context_lengths;  // [sequences] i32, including this step's rows
  kernels::TensorView block_tables;     // [sequences, max_blocks] i32
  // [sequences] i32; where what layers keep of a sequence stands, -1: nowhere (a model without
  // such layers, padding). The state of a sequence whose first row is at position 0 is
  // zeros before it.
  kernels::TensorView seats = {};
  // [sequences] i32; last rows of each that leave no state. No data: none does so.
  kernels::TensorView draft_rows = {};
  // The same for layers with a window, where these have blocks of their own; else no data. Entries
  // of blocks that no row sees are any block.
  kernels::TensorView window_slots = {};
  kernels::TensorView window_block_tables = {};
  kernels::TensorView logit_rows;  // [logit_rows] i32; rows whose logits are wanted; may be empty
  kernels::RowsPerSequence rows_per_sequence = kernels::RowsPerSequence::kAny;
  KvWriteListener* kv_listener = nullptr;  // null: nobody asks
};

// How far a row's logits may move with what else is in the step, and with how its prompt was cut
// into chunks. In float32 (weights, KV and products) not at all: the same bits. With bfloat16 or
// int8 among them, |a - b| <= this much of the row's max|b|. Linear layers keep the
// bits there too, on every path (kernels/cpu/linear/panel_kernel.h).
inline constexpr double kRoundedRowTolerance = 0.02;

// Limits of a draft model's steps behind steps of `limits`: each sequence may have the token that
// was drawn, too.
inline StepLimits DraftModelLimits(StepLimits limits) {
  limits.max_tokens += limits.max_sequences;
  limits.max_logit_rows = limits.max_sequences;
  limits.windows_apart = false;
  return limits;
}

class Model {
 public:
  // `progress(bytes_done, bytes_total)` is called while weights load. Errors name file and tensor.
  static absl::StatusOr<std::unique_ptr<Model>> Load(
      const ModelOptions& options, kernels::Device& device,
      const std::function<void(int64_t, int64_t)>& progress);
  virtual ~Model() = default;

  // Seats that AttachKv was given memory for; 0: no layer keeps a state.
  virtual int64_t seats() const { return 0; }
  // Bytes of one seat in all layers of this worker.
  virtual int64_t SeatBytes() const { return 0; }
  // What the layers keep in seats, in their order: f32, dimension 0 is the seat, dense. A seat's
  // parts have SeatBytes together. Valid until the next AttachKv.
  virtual std::vector<kernels::TensorView> states() const { return {}; }
  // Bytes of one KV block in all layers of this worker, none of them apart.
  virtual int64_t KvBlockBytes(int64_t block_tokens) const = 0;
  // Cuts `memory`, which has room for these blocks (proto/layers/kv_sizes.h), into one view per
  // layer, and allocates the workspace of attention. With window blocks, layers with a window have
  // those and steps name them; so with seats. Before the first Forward; again, before the next one,
  // with other memory or blocks.
  virtual absl::Status AttachKv(std::byte* memory, KvBlocks blocks, int64_t block_tokens) = 0;
  // Makes `group`, which must outlive the model or be replaced by another call, sum what the ranks
  // of this stage compute; null: this worker is the stage. Exchanges sizes with the other ranks,
  // which call it too. Needed before Forward where the share is not all of its layers.
  virtual absl::Status JoinRanks(kernels::Group* /*group*/, kernels::Stream& /*stream*/) {
    return absl::OkStatus();
  }
  // Bytes that a kernels::StagedGroup for JoinRanks needs for the largest step.
  virtual int64_t group_staging_bytes() const { return 0; }
  // Enqueues one step. A share without the embedding starts from the step's rows of stage_rows(),
  // one without the head ends with them; with the head, logits() rows are valid when the stream has
  // passed it.
  virtual absl::Status Forward(const StepInputs& step, kernels::Stream& stream) = 0;
  // [max_tokens, hidden] f32: the residual stream that stages hand on, whole on every rank.
  virtual kernels::TensorView stage_rows() const = 0;
  // On the last stage's rank 0, [max_logit_rows, vocabulary] f32; the first step.logit_rows.rows()
  // rows hold the last Forward's logits.
  virtual kernels::TensorView logits() const = 0;
  // Beside them, [max_logit_rows, embedding width] f32: what they were computed from, behind the
  // final norm. Empty: this model does not tell.
  virtual kernels::TensorView final_rows() const { return {}; }
  // Whether this share has the model's head for further tokens (v1::DraftHead).
  virtual bool has_draft_head() const { return false; }
  // Enqueues a pass of that head behind Forward, which keeps up its keys and values, and leaves
  // draft_logits of step.logit_rows: of tokens two behind the row's own. step.token_ids are those
  // behind each row. `goes_on`: rows are the logit rows of the Draft before, in their order, one
  // position further; else those of the last Forward. step.kv_listener hears of the head's layer
  // as of one behind the share's own. Ranks call it alike.
  virtual absl::Status Draft(const StepInputs& /*step*/, bool /*goes_on*/,
                             kernels::Stream& /*stream*/) {
    return absl::OkStatus();
  }
  virtual kernels::TensorView draft_logits() const { return {}; }  // as logits()
  // The whole model that drafts for this one, where this share holds it (v1::DraftModel), else
  // null: its keys and values are in blocks of the same numbers, its steps are
  // DraftModelLimits at most. Owned.
  virtual Model* draft_model() { return nullptr; }
  // Positions of a sequence at most; 0: this model does not tell.
  virtual int64_t max_positions() const { return 0; }
  // Begins to pack, behind the steps, what Load left to it: until then steps are slower, and have
  // the same results. Once, and soon: files that are cut short meanwhile end the process.
  virtual void PackWeights() {}
  virtual int64_t weight_bytes() const = 0;  // of packed weights
  // The part of these that is not in use yet.
  virtual int64_t waiting_weight_bytes() const { return 0; }
  virtual int64_t activation_bytes() const = 0;  // activations and workspaces
};

}  // namespace tessera::worker
