// One step of a lane, from its plan to its outcome: the rows of each sequence, the
// tokens drawn and scored, and what the executor borrows meanwhile. Reused.
//
// Thread rule: plain data of one thread (the engine's).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kvcache/snapshot_index.h"
#include "worker/engine/sequence.h"
#include "worker/step/kv_push.h"
#include "worker/step/sampler.h"
#include "worker/step/state_copy.h"
#include "worker/step/step_arrays.h"
#include "worker/step/step_executor.h"

namespace tessera::worker {

// What a penalty needs of a sequence and drafts behind it (TokenHistory).
struct DraftHistory {
  std::vector<int32_t> ids, counts;
};

struct EngineStep {
  struct Scheduled {
    Sequence* sequence;
    int64_t rows;  // drafts included, which are the last ones
    int32_t first_row;
    std::span<const int32_t> drafts = {};  // of draft_ids
    kvcache::SnapshotHold save = {};       // where its states behind these rows are kept
    kvcache::Seat exchange{nullptr};       // from which they are restored
  };
  // A sequence with drafts has several: one behind its last token, then one behind each draft.
  struct Draw {
    Sequence* sequence;
    int32_t row;
    int32_t drafts_before = 0;             // rows of drafts that it depends on
    std::span<const int32_t> drafts = {};  // that follow; it tells whether the first stands
    int32_t accepted = 0;                  // of `drafts`, once the step is back; of the first draw
    bool refused = false;                  // once it is back: a draft before it does not stand
  };
  struct ScoreRow {
    Sequence* sequence;
    int32_t row;
    int64_t position;  // of the token to score
    int32_t sum = 0;   // not 0: which of the outcome's row sums its row is part of
  };

  explicit EngineStep(const StepLimits& limits) : arrays(limits) {
    draft_ids.reserve(static_cast<size_t>(limits.max_tokens));
  }

  StepWork work() const {
    return {&arrays,  sample_requests, score_requests, pushes,
            restores, saves,           draft_tokens,   make_masks ? &make_masks : nullptr};
  }

  double began_seconds = 0;
  std::vector<Scheduled> scheduled;
  std::vector<Draw> draws;
  std::vector<ScoreRow> score_rows;
  std::vector<int32_t> draft_ids;  // of all sequences; has room for those of any step
  StepArrays arrays;
  // By draw; sample_requests borrow them.
  std::vector<std::vector<int32_t>> bans, masks;
  std::vector<DraftHistory> histories;  // of draws behind drafts
  std::vector<SampleRequest> sample_requests;
  std::vector<ScoreRequest> score_requests;
  std::vector<KvPush> pushes;
  std::vector<StateCopy> restores, saves;
  int32_t draft_tokens = 0;          // as StepWork has it
  std::function<void()> make_masks;  // likewise; empty: no draw has a mask
};

}  // namespace tessera::worker
