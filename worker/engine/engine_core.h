// The engine of a leader without its thread: admits submissions, lets scheduler/batcher choose,
// runs the step on the model, samples, and says what happened to every choice.
//
// A sequence's states: held -> waiting -> running -> finished; running -> waiting (preempted: its
// blocks are given back and its tokens computed again); every state -> cancelled. Each call leaves
// no block with a sequence that ended. The tokens of a choice depend on its submission alone: not
// on what else runs, on chunks, preemption, the prefix cache, or on where an earlier attempt
// stopped (in f32 exactly; see kernels/ops.h on invariance).
//
// Thread rule: one thread. Ownership: owns the executor, which runs the steps on the replica's
// workers. Time comes from the caller. A step that fails ends its sequences with ERROR and the
// engine goes on; so do the submissions for whose rows a step gives no token (logits that are not
// finite, every id banned), while the others of that step get theirs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "kvcache/block_pool.h"
#include "kvcache/prefix_index.h"
#include "proto/worker.pb.h"
#include "scheduler/batcher.h"
#include "worker/engine/engine_admission.h"
#include "worker/engine/sequence.h"
#include "worker/model/model.h"
#include "worker/step/sampler.h"
#include "worker/step/step_arrays.h"
#include "worker/step/step_executor.h"

namespace tessera::worker {

class EngineCore {
 public:
  using Events = std::vector<v1::TokenEvent>;

  // What `options` need of the model; Model::Load and the executor must be given the same.
  static StepLimits LimitsOf(const EngineOptions& options);
  EngineCore(const EngineOptions& options, std::unique_ptr<StepExecutor> executor);

  // Queues a submission; one that is refused gets its events at once.
  void Submit(v1::Submit submit, double now_seconds, Events* events);
  // Refuses every choice of `submit` with `status`.
  static void Refuse(const v1::Submit& submit, const absl::Status& status, Events* events);
  // Ends choices and frees what they hold. Unknown ones and other attempts are ignored: they ended
  // before.
  void Cancel(const v1::Cancel& cancel, Events* events);
  // Ends everything with `status` (CANCELLED: as if cancelled).
  void EndAll(const absl::Status& status, Events* events);

  // Runs one step. `clock` is read at its start and end, in seconds.
  void Step(const std::function<double()>& clock, Events* events);

  // Not OK: the replica's workers cannot run steps any more, and why. What was running is for
  // another replica: the engine ends its session, and nobody is told of a failure.
  absl::Status Broken() { return executor_->Broken(); }
  bool Busy() const { return !running_.empty() || !waiting_.empty(); }
  int64_t sequences() const;  // that have not ended, held ones included
  const v1::EngineLoad& load() const { return load_; }
  void ResetLoad();  // counts from zero again
  int64_t device_bytes() const { return executor_->device_bytes(); }

 private:
  struct Scheduled {
    Sequence* sequence;
    int64_t rows;
    int32_t first_row;
  };
  struct Draw {
    Sequence* sequence;
    int32_t row;
  };
  struct ScoreRow {
    Submission* submission;
    int32_t row;
    int64_t position;  // of the token to score
  };

  // Planning (engine_core.cc).
  void RefuseOverdue(double now_seconds, Events* events);
  void Plan();
  kvcache::PrefixMatch Match(const Sequence& sequence) const;
  void ApplyPlan(double now_seconds, Events* events);
  void GiveBack(Events* events);
  void Admit(std::unique_ptr<Sequence> sequence, const kvcache::PrefixMatch& match, int64_t rows,
             double now_seconds);
  std::unique_ptr<Sequence> TakeRunning(const Sequence* sequence);
  void UpdateLoad();

  // One step (engine_step.cc).
  absl::Status RunStep();
  void CollectLogitRows();
  void CollectRequests();
  void EndWithoutToken(Events* events);
  void Distribute(double now_seconds, Events* events);
  void IndexBlocks(Sequence* sequence);
  void ReleaseHeld(Submission* submission);
  void CloseEchoes(double now_seconds, Events* events);
  void TakeToken(Sequence* sequence, const SampleResult& result, double now_seconds,
                 Events* events);
  static v1::TokenEvent* AddEvent(Sequence* sequence, double now_seconds, Events* events);
  void FailStep(const absl::Status& status, Events* events);

  // Ends (engine_end.cc); each destroys the sequence.
  void Finish(std::unique_ptr<Sequence> sequence);
  void End(std::unique_ptr<Sequence> sequence, const absl::Status& status, Events* events);
  void EndSubmission(const std::shared_ptr<Submission>& submission, const absl::Status& status,
                     Events* events);

  EngineOptions options_;
  const std::unique_ptr<StepExecutor> executor_;
  kvcache::BlockPool pool_;
  kvcache::PrefixIndex index_;

  std::vector<std::unique_ptr<Sequence>> running_;  // by rank
  std::map<SequenceRank, std::unique_ptr<Sequence>> waiting_;
  std::unordered_map<uint64_t, std::shared_ptr<Submission>> submissions_;  // open ones, by id
  uint64_t arrivals_ = 0;
  int64_t queued_submissions_ = 0;  // not started
  double next_deadline_seconds_ = 0;

  // Of the step in hand; members so that their memory is reused.
  std::vector<scheduler::RunningSequence> running_snapshot_;
  std::vector<scheduler::WaitingSequence> waiting_snapshot_;
  std::vector<kvcache::PrefixMatch> matches_;
  scheduler::StepPlan plan_;
  std::vector<Scheduled> scheduled_;
  std::vector<Draw> draws_;
  std::vector<ScoreRow> score_rows_;
  StepArrays arrays_;
  std::vector<std::vector<int32_t>> bans_;  // by draw; sample_requests_ borrow them
  std::vector<SampleRequest> sample_requests_;
  std::vector<ScoreRequest> score_requests_;
  StepOutcome outcome_;

  v1::EngineLoad load_;
};

}  // namespace tessera::worker
