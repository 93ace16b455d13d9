// The engine of a leader without its thread: the loop over admitted submissions. Each turn of it
// has the next step planned and built (step_builder.h), runs it on the replica's workers, and says
// what happened to every choice.
//
// A step: idle lane -> planned -> in flight -> ended (its tokens are sent), or failed (its
// sequences end). The states of sequences: sequence_table.h; of KV between replicas: hand_over.h.
// Each call leaves no block with a sequence that ended. The tokens of a choice depend on its
// submission alone: not on what else runs, on chunks, preemption, the prefix cache, or on where an
// earlier attempt stopped (in f32 exactly; see kernels/ops.h on invariance).
//
// Lanes (scheduler/lanes.h): as many steps are in flight as the executor allows. A sequence belongs
// to one lane from its admission on; one that ends while a step computes rows of it is heard of at
// once, and its blocks return with the step.
//
// Steps ahead, where the executor runs them (on GPUs that meet by themselves): with one step in
// flight of all lanes, its lane's next is begun as if each token that the first draws were there,
// and takes it on the device. So the device goes on while the host reads tokens. A sequence that
// turns out to have ended wasted a row: nobody hears of it, and it is in no index. What reaches its
// length for certain gets no row. The next step waits for the first where a running sequence needs
// more than the number of its tokens (penalties, a grammar, bad words of several tokens, prompt
// logprobs), hands over its KV, or would be preempted, and behind a step that the executor does not
// run ahead (logprobs). What is submitted is first planned behind both.
//
// Drafts (worker/drafts): a step may try tokens behind a sequence's last one; those that equal the
// tokens drawn at their places stand, and the step ends with one event for each of them and one
// more. So the tokens are those without drafts. Only what stands is in computed_tokens and in the
// index; blocks of the others are given back with the step. A state that layers keep stands before
// the drafts of a step, whatever stood: the next step computes those rows once more. No step runs
// ahead of one with drafts, nor where the next may have some.
//
// Masks of grammars are made while the forward pass of their step runs, on the thread that runs it,
// or enqueues it, where this worker samples; where another one does, they follow the step there.
// Until a step is back nothing else touches the grammars of its sequences.
//
// Thread rule: one thread. Ownership: owns the executor, which runs the steps on the replica's
// workers. Time comes from the caller. A step that fails ends its sequences with ERROR and the
// engine goes on; so do the submissions for whose rows a step gives no token (logits that are not
// finite, every id banned), while the others of that step get theirs.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/worker.pb.h"
#include "third_party/xgrammar/token_grammar.h"
#include "worker/engine/engine_admission.h"
#include "worker/engine/engine_step.h"
#include "worker/engine/hand_over.h"
#include "worker/engine/kv_memory.h"
#include "worker/engine/kv_mover.h"
#include "worker/engine/sequence_table.h"
#include "worker/engine/state_keeper.h"
#include "worker/engine/step_builder.h"
#include "worker/engine/token_events.h"
#include "worker/model/model.h"
#include "worker/step/step_executor.h"

namespace tessera::worker {

class EngineCore {
 public:
  using Events = TokenEvents;

  // What `options` need of the model; Model::Load and the executor must be given the same.
  static StepLimits LimitsOf(const EngineOptions& options);
  EngineCore(const EngineOptions& options, std::unique_ptr<StepExecutor> executor);

  // Queues a submission; one that is refused gets its events at once.
  void Submit(v1::Submit submit, double now_seconds, Events* events);
  // Ends choices and frees what they hold. Unknown ones and other attempts are ignored: they ended
  // before.
  void Cancel(const v1::Cancel& cancel, Events* events);
  // Who moves KV; null, as at first: nobody. Must outlive the core.
  void SetMover(KvMover* mover) { hand_over_.SetMover(mover); }
  // Who compiles grammars: OnGrammar tells the outcome, at any time. Null, as at first: a
  // submission with one is refused.
  using Compile = std::function<void(const KvKey& key, const std::string& grammar)>;
  void SetCompile(Compile compile) { compile_ = std::move(compile); }
  // Its choices start, each behind what it has of its output. Ignored where nobody waits for it.
  void OnGrammar(const KvKey& key,
                 const absl::StatusOr<std::shared_ptr<const TokenGrammar>>& grammar,
                 Events* events);
  // Keeps room for KV to come; answered in TakeReserved when there is room.
  void Reserve(v1::Reserve reserve) { hand_over_.Reserve(std::move(reserve)); }
  bool has_reserved() const { return hand_over_.has_reserved(); }
  std::vector<v1::Reserved> TakeReserved() { return hand_over_.TakeReserved(); }
  // What KvMoverListener heard.
  void OnKvExpected(const KvKey& key, const absl::StatusOr<v1::KvTarget>& target) {
    hand_over_.OnKvExpected(key, target);
  }
  void OnKvArrived(const KvKey& key, const absl::Status& status) {
    hand_over_.OnKvArrived(key, status);
  }
  void OnKvSent(const KvKey& key, const absl::Status& status, const v1::KvTransfer& transfer,
                double now_seconds, Events* events);
  // Ends everything with `status` (CANCELLED: as if cancelled).
  void EndAll(const absl::Status& status, Events* events);

  // Starts a step in each lane that can go on; waits for no other worker, but for its device in the
  // step before one that does not run ahead.
  void BeginSteps(double now_seconds, Events* events);
  // Whether BeginSteps may find something to start: there is work, and something changed since.
  bool MayBegin() const { return table_.changed() && Busy(); }
  // Whether a step is in flight for which EndStep waits for no other worker (StepExecutor::Ready).
  bool StepReady() { return !in_flight_.empty() && executor_->Ready(); }
  // Takes the outcome of the oldest step in flight. `clock` gives seconds; read when it is there.
  void EndStep(const std::function<double()>& clock, Events* events);
  // BeginSteps, and EndStep where a step is in flight.
  void Step(const std::function<double()>& clock, Events* events);
  // See StepExecutor::SetWake.
  void SetWake(std::function<void()> wake) { executor_->SetWake(std::move(wake)); }

  // Not OK: the replica's workers cannot run steps any more, and why. What was running is for
  // another replica: the engine ends its session, and no failure is reported.
  absl::Status Broken() { return executor_->Broken(); }
  bool Busy() const;
  int64_t sequences() const { return table_.open_choices(); }  // held ones included
  const v1::EngineLoad& load() const { return load_; }
  void ResetLoad();  // counts from zero again
  int64_t device_bytes() const { return executor_->device_bytes(); }

 private:
  // The steps of one micro-batch.
  struct Lane {
    Lane(const StepLimits& limits, int max_steps) {
      for (int i = 0; i < max_steps; ++i) steps.emplace_back(limits);
    }

    EngineStep& next() { return steps[begun % steps.size()]; }
    EngineStep& oldest() { return steps[ended % steps.size()]; }
    uint64_t in_flight() const { return begun - ended; }

    std::deque<EngineStep> steps;  // as many as may be in flight
    uint64_t begun = 0, ended = 0;
    double last_end_seconds = 0;  // of a step
  };
  class LaneStarter;  // what scheduler::StartLanes asks for

  // engine_core.cc
  void EndSubmission(const std::shared_ptr<Submission>& submission, const absl::Status& status,
                     Events* events);
  void Begin(Submission* submission);
  void UpdateLoad();

  // engine_core_step.cc
  bool MayRunAhead(int lane) const;
  bool BeginStep(int lane, double now_seconds, Events* events);
  template <typename Predicate>
  void DropFromStep(EngineStep& step, const Predicate& drops);
  void DropRefusedDrafts(EngineStep& step);
  void GiveBackDrafts(int lane);
  void EndWithoutToken(EngineStep& step, Events* events);
  void AddRowSums(const EngineStep& step);  // to those of their submissions
  void Distribute(EngineStep& step, double now_seconds, Events* events);
  void CloseEchoes(const EngineStep& step, double now_seconds, Events* events);
  bool TakeToken(const EngineStep::Draw& draw, SampleResult& result, double now_seconds,
                 Events* events);
  void FailStep(int lane, const EngineStep& step, const absl::Status& status, Events* events);
  void CountStep(Lane& lane, const EngineStep& step, bool prefill, double now_seconds);

  const EngineOptions options_;
  v1::EngineLoad load_;
  KvMemory memory_;
  Compile compile_;
  HandOver hand_over_;
  SequenceTable table_;  // goes before the memory of its blocks and the mover they are sent by
  StepBuilder builder_;
  const StateKeeper states_;

  std::deque<Lane> lanes_;
  std::deque<int> in_flight_;    // a lane for each step, by when it began
  double last_end_seconds_ = 0;  // of a step
  StepOutcome outcome_;          // of the step in hand

  std::unique_ptr<StepExecutor> executor_;  // the last, so the first to go: it borrows from lanes_
};

}  // namespace tessera::worker
