// One step of a lane, from its plan to its outcome: the rows of each sequence, the
// tokens drawn and scored, and what the executor borrows meanwhile. Reused.
//
// Thread rule: plain data of one thread (the engine's).
#pragma once

#include <cstdint>
#include <vector>

#include "kvcache/snapshot_index.h"
#include "worker/engine/sequence.h"
#include "worker/step/kv_push.h"
#include "worker/step/sampler.h"
#include "worker/step/state_copy.h"
#include "worker/step/step_arrays.h"
#include "worker/step/step_executor.h"

namespace tessera::worker {

struct EngineStep {
  struct Scheduled {
    Sequence* sequence;
    int64_t rows;
    int32_t first_row;
    kvcache::SnapshotHold save = {};  // where its states behind these rows are kept
    kvcache::Seat exchange{nullptr};  // from which they are restored
  };
  struct Draw {
    Sequence* sequence;
    int32_t row;
  };
  struct ScoreRow {
    Sequence* sequence;
    int32_t row;
    int64_t position;  // of the token to score
  };

  explicit EngineStep(const StepLimits& limits) : arrays(limits) {}

  StepWork work() const {
    return {&arrays, sample_requests, score_requests, pushes, restores, saves};
  }

  double began_seconds = 0;
  std::vector<Scheduled> scheduled;
  std::vector<Draw> draws;
  std::vector<ScoreRow> score_rows;
  StepArrays arrays;
  // By draw; sample_requests borrow them.
  std::vector<std::vector<int32_t>> bans, masks;
  std::vector<SampleRequest> sample_requests;
  std::vector<ScoreRequest> score_requests;
  std::vector<KvPush> pushes;
  std::vector<StateCopy> restores, saves;
};

}  // namespace tessera::worker
