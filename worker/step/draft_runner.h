// Tokens that are proposed behind a step, by the model's head for further tokens (Model::Draft, on
// each rank of the last stage) or by a draft model (Model::draft_model, where tokens are drawn).
// The first pass goes over the step's rows, so that keys and values keep up, and proposes a token
// behind each sequence's drawn one; each further one goes over the row of what was proposed last.
//
// A head goes over each row with the token behind it. A draft model goes over the tokens that stand
// and, where a block has room, the drawn one, one position further: what it wrote for tokens that
// did not stand is written again before it is read.
//
// A sequence's row is that of the last drawn token whose drafts before it stand, as the leader
// finds out itself. Where a sequence has no block for a position its list ends. A proposed token is
// drawn as the one at its place will be: with the sequence's seed, position and filters.
//
// Thread rule: one thread (the one that runs steps). Ownership: borrows model, device and group;
// owns its step's memory, all allocated by Create.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/collectives/group.h"
#include "kernels/device.h"
#include "proto/worker.pb.h"
#include "worker/model/model.h"
#include "worker/step/sampler.h"
#include "worker/step/step_arrays.h"
#include "worker/step/step_executor.h"
#include "worker/step/step_inputs.h"

namespace tessera::worker {

class DraftRunner {
 public:
  // `model`: its part has the head, or the draft model. `limits`: of the steps. `block_tokens`: of
  // the KV that is attached. `samples`: this rank draws.
  static absl::StatusOr<std::unique_ptr<DraftRunner>> Create(const StepLimits& limits,
                                                             const SamplerLimits& sampler,
                                                             int64_t block_tokens, bool samples,
                                                             Model* model, kernels::Device* device);

  // Behind model->Forward of `work`. Where this rank draws, `outcome` has the tokens, and gets the
  // drafts. `group`: null: this worker is the whole stage. `listener` hears of the keys and values
  // of a head's layer; null: nobody asks.
  absl::Status Run(const StepWork& work, kernels::Group* group, KvWriteListener* listener,
                   kernels::Stream& stream, StepOutcome* outcome);

  int64_t device_bytes() const;

 private:
  // What is proposed behind one sequence.
  struct List {
    int64_t sequence = 0;  // of the step
    size_t sample = 0;     // that is drawn last
    int32_t row = 0;       // behind which
    int32_t position = 0;  // of the first pass's last row of it
    bool ends = false;
    std::vector<int32_t> drafts;
  };
  // The columns of a step of these passes.
  struct Columns {
    std::vector<int32_t> token_ids, positions, rope_lengths, slots, query_starts, context_lengths;
    std::vector<int32_t> widths, tables, logit_rows, window_slots, window_tables;
    void Clear();
  };

  DraftRunner(const StepLimits& limits, int64_t vocabulary, int64_t block_tokens, Model* model);

  absl::Status AgreeOn(kernels::Group* group, kernels::Stream& stream, std::vector<int32_t>* ids);
  void FindLists(const StepArrays& step, std::span<const int32_t> drawn);
  void FillHeadRows(const StepArrays& step);
  void FillModelRows(const StepArrays& step);
  void FillNext(const StepArrays& step, int32_t behind);
  // Appends a row of the draft model, unless it is beyond its positions.
  void AddModelRow(int32_t token, int32_t position, int32_t rope_length, int32_t slot);
  // Where a position stands, and whether nothing can stand there.
  int32_t SlotOf(std::span<const int32_t> table, int32_t position) const;
  bool IsBeyond(std::span<const int32_t> table, int32_t position) const;
  absl::Status Pass(const StepWork& work, int32_t behind, kernels::Group* group,
                    KvWriteListener* listener, kernels::Stream& stream);
  absl::Status Draw(const StepWork& work, int32_t behind, const kernels::TensorView& logits,
                    kernels::Stream& stream);

  const int64_t block_tokens_;
  Model* const model_;
  Model* const draft_model_;        // null: the model's head drafts
  const int64_t vocabulary_;        // of the model
  const int64_t draft_vocabulary_;  // of what drafts
  StepArrays arrays_;
  std::unique_ptr<StepUpload> upload_;
  std::unique_ptr<Sampler> sampler_;  // null: another rank draws
  kernels::Buffer ids_;               // what ranks agree on
  Columns columns_;
  std::vector<List> lists_;
  std::vector<int32_t> next_ids_;           // by row of the step: the token behind it
  std::vector<int32_t> proposed_;           // by list
  std::vector<v1::SamplingParams> params_;  // by list, where the vocabularies differ
};

}  // namespace tessera::worker
