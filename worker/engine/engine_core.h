// The engine of a leader without its thread: admits submissions, lets scheduler/batcher choose,
// runs the step on the model, samples, and says what happened to every choice.
//
// A sequence's states: held -> waiting -> running -> finished; running -> waiting (preempted: its
// blocks are given back and its tokens computed again); every state -> cancelled. With KV handed
// over between replicas (engine_kv.cc), where the prompt is computed and leaves step by step:
// running -> sent -> finished; where it goes on: room for its KV -> KV and submission there, in any
// order -> running. Each call leaves no block with a sequence that ended. The tokens of a choice
// depend on its submission alone: not on what else runs, on chunks, preemption, the prefix cache,
// or on where an earlier attempt stopped (in f32 exactly; see kernels/ops.h on invariance).
//
// Lanes (scheduler/lanes.h): as many steps are in flight as the executor allows. A sequence belongs
// to one lane from its admission on; one that ends while a step computes rows of it is heard of at
// once, and its blocks return with the step.
//
// Steps ahead, where the executor runs them (a worker alone on a GPU): with one step in flight, the
// next is begun as if each token that the first draws were there, and takes it on the device. So
// the device goes on while the host reads tokens. A sequence that turns out to have ended wasted a
// row: nobody hears of it, and it is in no index. What reaches its length for certain gets no row.
// The next step waits for the first where a running sequence needs more than the number of its
// tokens (penalties, bad words of several tokens, prompt logprobs), hands over its KV, or would be
// preempted, and behind a step that the executor does not run ahead (logprobs). What is submitted
// is first planned behind both.
//
// Thread rule: one thread. Ownership: owns the executor, which runs the steps on the replica's
// workers. Time comes from the caller. A step that fails ends its sequences with ERROR and the
// engine goes on; so do the submissions for whose rows a step gives no token (logits that are not
// finite, every id banned), while the others of that step get theirs.
#pragma once

#include <cstdint>
#include <deque>
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
#include "scheduler/answer_lengths.h"
#include "scheduler/batcher.h"
#include "worker/engine/engine_admission.h"
#include "worker/engine/fair_turns.h"
#include "worker/engine/kv_mover.h"
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
  // Who moves KV; null, as at first: nobody. Must outlive the core.
  void SetMover(KvMover* mover) { mover_ = mover; }
  // Keeps room for KV to come; answered in TakeReserved when there is room.
  void Reserve(v1::Reserve reserve);
  bool has_reserved() const { return !reserved_.empty(); }
  std::vector<v1::Reserved> TakeReserved() { return std::exchange(reserved_, {}); }
  // What KvMoverListener heard.
  void OnKvExpected(const KvKey& key, const absl::StatusOr<v1::KvTarget>& target);
  void OnKvArrived(const KvKey& key, const absl::Status& status);
  void OnKvSent(const KvKey& key, const absl::Status& status, const v1::KvTransfer& transfer,
                double now_seconds, Events* events);
  // Ends everything with `status` (CANCELLED: as if cancelled).
  void EndAll(const absl::Status& status, Events* events);

  // Starts a step in each lane that can go on; waits for no other worker.
  void BeginSteps(double now_seconds, Events* events);
  // Whether BeginSteps may find something to start: there is work, and something changed since.
  bool MayBegin() const { return changed_ && Busy(); }
  // Whether a step is in flight for which EndStep waits for no other worker.
  bool StepReady() { return !in_flight_.empty() && executor_->Ready(); }
  // Takes the outcome of the oldest step in flight. `clock` gives seconds; read when it is there.
  void EndStep(const std::function<double()>& clock, Events* events);
  // BeginSteps, and EndStep where a step is in flight.
  void Step(const std::function<double()>& clock, Events* events);
  // See StepExecutor::SetWake.
  void SetWake(std::function<void()> wake) { executor_->SetWake(std::move(wake)); }

  // Not OK: the replica's workers cannot run steps any more, and why. What was running is for
  // another replica: the engine ends its session, and nobody is told of a failure.
  absl::Status Broken() { return executor_->Broken(); }
  bool Busy() const;
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
    Sequence* sequence;
    int32_t row;
    int64_t position;  // of the token to score
  };
  // A step, from its plan until its outcome is told. Reused.
  struct LaneStep {
    explicit LaneStep(const StepLimits& limits) : arrays(limits) {}

    double began_seconds = 0;
    std::vector<Scheduled> scheduled;
    std::vector<Draw> draws;
    std::vector<ScoreRow> score_rows;
    StepArrays arrays;
    std::vector<std::vector<int32_t>> bans;  // by draw; sample_requests borrow them
    std::vector<SampleRequest> sample_requests;
    std::vector<ScoreRequest> score_requests;
    std::vector<KvPush> pushes;
  };
  // One micro-batch: its sequences, and its steps.
  struct Lane {
    Lane(const StepLimits& limits, int max_steps) {
      for (int i = 0; i < max_steps; ++i) steps.emplace_back(limits);
    }

    LaneStep& next() { return steps[begun % steps.size()]; }
    LaneStep& oldest() { return steps[ended_steps % steps.size()]; }
    uint64_t in_flight() const { return begun - ended_steps; }

    std::vector<std::unique_ptr<Sequence>> running;  // by rank
    std::vector<std::unique_ptr<Sequence>> ended;    // of which steps in flight compute rows
    std::deque<LaneStep> steps;                      // as many as may be in flight
    uint64_t begun = 0, ended_steps = 0;
  };
  class LaneStarter;  // what scheduler::StartLanes asks for

  // Room for the KV of a prompt that another replica computes.
  struct KvRoomOf {
    explicit KvRoomOf(kvcache::BlockPool* pool) : blocks(pool) {}

    v1::Reserve request;
    std::pair<uint64_t, uint64_t> turn;  // its turn, and what counts arrivals
    std::vector<int32_t> tokens;         // the prompt
    kvcache::BlockTable blocks;
    int64_t cached_blocks = 0;  // of these, found in the prefix index
    kvcache::PrefixNode node = 0;
    bool has_blocks = false;             // else it waits for them
    std::string ticket;                  // empty: nobody was sent there yet
    bool arrived = false;                // all of it
    std::unique_ptr<Sequence> sequence;  // submitted; waits for the KV
  };
  // A sequence whose first token is drawn and whose KV is on the way.
  struct KvSent {
    std::unique_ptr<Sequence> sequence;
    double since_seconds = 0;
  };

  // Planning (engine_core.cc).
  void RefuseOverdue(double now_seconds, Events* events);
  void Plan(const Lane& lane);
  // Tokens that it will have in the end, as far as recent answers tell.
  int64_t ExpectedTokens(const Sequence& sequence) const;
  kvcache::PrefixMatch Match(const Sequence& sequence) const;
  // Whether a step may be begun behind the one in flight.
  bool MayRunAhead(const Lane& lane) const;
  void ApplyPlan(Lane& lane, double now_seconds, Events* events);
  void GiveBack(Lane& lane, Events* events);
  void Admit(Lane& lane, std::unique_ptr<Sequence> sequence, const kvcache::PrefixMatch& match,
             int64_t rows, double now_seconds);
  // A submission was started or ended before.
  void LeaveQueue(const Submission& submission);
  void MergeLanes();
  std::unique_ptr<Sequence> TakeRunning(const Sequence* sequence);
  void UpdateLoad();

  // One step (engine_step.cc).
  bool BeginStep(size_t index, double now_seconds, Events* events);
  absl::Status SendStep(LaneStep& step);
  void CollectLogitRows(LaneStep& step);
  void CollectRequests(LaneStep& step);
  void CollectPushes(LaneStep& step);
  template <typename Predicate>
  void DropFromStep(LaneStep& step, const Predicate& drops);
  void EndWithoutToken(LaneStep& step, Events* events);
  void Distribute(LaneStep& step, double now_seconds, Events* events);
  void CountStep(const LaneStep& step, bool prefill, double now_seconds);
  void IndexBlocks(Sequence* sequence);
  void ReleaseHeld(Submission* submission);
  void CloseEchoes(const LaneStep& step, double now_seconds, Events* events);
  void TakeToken(Sequence* sequence, const SampleResult& result, double now_seconds,
                 Events* events);
  static v1::TokenEvent* AddEvent(Sequence* sequence, double now_seconds, Events* events);
  void FailStep(const Lane& lane, const LaneStep& step, const absl::Status& status, Events* events);

  // Hand-over (engine_kv.cc).
  void GiveRooms();
  // Its room was given, or is not wanted any more.
  void StopWaiting(const KvRoomOf& room, bool given);
  void DropRoom(const KvKey& key);
  bool WaitForKv(std::unique_ptr<Sequence>* sequence);
  void Join(const KvKey& key);
  void TakeJoining(Lane& lane);
  void HandOver(std::unique_ptr<Sequence> sequence, double now_seconds, Events* events);
  static void DropSending(Sequence& sequence);
  void EndHandOver(KvSent sent, double now_seconds, Events* events);
  std::vector<std::unique_ptr<Sequence>> TakeMoving(const std::shared_ptr<Submission>& submission);
  int64_t running_sequences() const;  // those that join included

  // Ends (engine_end.cc); each destroys the sequence, or leaves it to the lane whose step needs it.
  void Finish(std::unique_ptr<Sequence> sequence);
  void CloseChoice(const std::shared_ptr<Submission>& submission);
  static void AddEnd(const Sequence& sequence, const absl::Status& status, Events* events);
  void End(std::unique_ptr<Sequence> sequence, const absl::Status& status, Events* events);
  void EndSubmission(const std::shared_ptr<Submission>& submission, const absl::Status& status,
                     Events* events);

  EngineOptions options_;
  const scheduler::BatchLimits lane_limits_;
  kvcache::BlockPool pool_;
  kvcache::PrefixIndex index_;

  KvMover* mover_ = nullptr;  // outlives the sequences, whose sending it may be
  std::deque<Lane> lanes_;
  std::deque<size_t> in_flight_;  // a lane for each step, by when it began
  bool changed_ = false;          // something that may let a lane go on
  double last_end_seconds_ = 0;   // of a step
  std::map<SequenceRank, std::unique_ptr<Sequence>> waiting_;
  std::map<KvKey, KvRoomOf> rooms_;
  std::map<std::pair<uint64_t, uint64_t>, KvKey> rooms_waiting_;  // for blocks, by turn
  FairTurns room_turns_;
  std::vector<v1::Reserved> reserved_;
  std::deque<std::unique_ptr<Sequence>> joining_;  // their KV is there; no lane has taken them
  std::map<KvKey, KvSent> sending_;
  std::unordered_map<uint64_t, std::shared_ptr<Submission>> submissions_;  // open ones, by id
  uint64_t arrivals_ = 0;
  int64_t queued_submissions_ = 0;  // not started
  FairTurns turns_;                 // of these
  double next_deadline_seconds_ = 0;

  scheduler::AnswerLengths answers_;  // that ended by themselves

  // Of the plan in hand; members so that their memory is reused.
  std::vector<scheduler::RunningSequence> running_snapshot_;
  std::vector<scheduler::GrowingSequence> beside_snapshot_;
  std::vector<scheduler::WaitingSequence> waiting_snapshot_;
  std::vector<kvcache::PrefixMatch> matches_;
  scheduler::StepPlan plan_;
  StepOutcome outcome_;

  v1::EngineLoad load_;
  std::unique_ptr<StepExecutor> executor_;  // the last, so the first to go: it borrows from lanes_
};

}  // namespace tessera::worker
