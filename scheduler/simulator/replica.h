// One replica, simulated: the queue, KV blocks and steps of a worker's engine, with a cost table
// instead of a device. Every step is chosen by scheduler/batcher, fed as the engine feeds it.
//
// Micro-batches are lanes (scheduler/lanes.h): a lane's step ends when it has come back from the
// last stage. Sequences whose KV came from elsewhere have no prompt that evens lanes out, so these
// are dealt evenly.
//
// Drafts (DraftChooser) get rows that the batcher has left. A step with drafts is not leapt.
//
// Leaps: steps in which every sequence decodes one token are run without asking the batcher, until
// a sequence finishes, blocks run short, or an event cuts the leap behind the step in progress: an
// arrival here, room that is reserved or given back, KV that has arrived, a loss, a straggler, a
// service level that a request here misses, another rate of a hop. Steps with chunks of prompts are
// never leapt, so the end of a chunk is one of a step.
// That is what the batcher would have said: every running sequence has one token to compute, rows
// and logit rows suffice for all, and their blocks are free, so rule 1 gives each its row and
// nobody is preempted; and nobody is admitted, because nobody waits, or because the first in the
// queue did not fit when the batcher was last asked, since when no block was given back and no
// place became free. Times of leapt steps are computed one by one, by the same sums as stepping.
//
// A preempted sequence is computed again from its first token (the engine's prefix cache may spare
// it some of that). Thread rule: one thread. Units: seconds, tokens, blocks.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/answer_lengths.h"
#include "scheduler/batcher.h"
#include "scheduler/router.h"
#include "scheduler/simulator/cost_table.h"
#include "scheduler/simulator/draft_chooser.h"

namespace tessera::scheduler {

struct ReplicaSetup {
  std::string name;
  Role role = Role::kBoth;
  std::shared_ptr<const CostTable> cost;
  BatchLimits limits;     // of all lanes together
  int micro_batches = 1;  // lanes
  // For a model that keeps states of sequences: how many run, in all lanes together, and how many
  // may be on their way here, from before their prompt is computed. 0: it keeps none.
  int64_t seats = 0;
  int64_t exchanges = 0;
  // What the router knows before anything was measured; 0: nothing, as in the daemon.
  double prefill_tokens_per_second = 0;
  double decode_tokens_per_second = 0;
  bool ready = true;                       // from the start; else from when a change recovers it
  std::vector<std::string> stage_devices;  // by stage, for reports; may be empty
  std::vector<int> stage_machines;         // by stage, for transfers; may be empty
  // By hop between stages, what activations pass (TransferSetup::links); empty: nothing that others
  // use too.
  std::vector<std::vector<int>> hop_links;
  double hop_bytes_per_row = 0;
};

// A submission, as the engine knows it.
struct SimulatedSequence {
  int32_t request = 0;
  double rank = 0;
  int64_t order = 0;         // of submission; breaks ties of rank
  int64_t known_tokens = 0;  // prompt and output so far
  int64_t computed_tokens = 0;
  int64_t cached_tokens = 0;   // that a prefix cache holds, whole blocks
  int64_t left_tokens = 0;     // that it will still emit
  int64_t unspent_tokens = 0;  // that the router expects of it
  int64_t prompt_tokens = 0;   // known when submitted
  bool prompt_pending = true;  // no token yet of this submission
  bool keep_blocks = false;    // when finished: its KV is to be sent on
  int32_t step_rows = 0;       // of the step in progress
  int32_t step_drafts = 0;     // that it tries, in rows beside these
  int32_t repeated = 0;        // rows of the next step that were drafts' and stood
  double started_seconds = -1;
  double last_token_seconds = 0;
};

// Told in the order of things within a replica.
class ReplicaListener {
 public:
  virtual ~ReplicaListener() = default;
  // Its first step runs from `now` to `step_end`.
  virtual void OnStarted(int replica, const SimulatedSequence& sequence, double now,
                         double step_end) = 0;
  virtual void OnFirstToken(int replica, const SimulatedSequence& sequence, double now) = 0;
  virtual void OnFinished(int replica, const SimulatedSequence& sequence, double now) = 0;
  virtual void OnPreempted(int replica, const SimulatedSequence& sequence, double now) = 0;
  virtual void OnNeverFits(int replica, const SimulatedSequence& sequence, double now) = 0;
  // Sequences that came from elsewhere run now.
  virtual void OnJoined(int /*replica*/) {}
  // Every token, where wants_tokens.
  virtual void OnToken(int /*replica*/, const SimulatedSequence&, double /*now*/) {}
};

struct SteppingOptions {
  bool leaps = true;
  bool wants_tokens = false;
  bool check_invariants = false;                                          // after every plan
  double coming_until_seconds = std::numeric_limits<double>::infinity();  // the last arrival
};

struct ReplicaCounters {
  int64_t plans = 0;  // times the batcher was asked
  int64_t steps = 0;
  int64_t leapt_steps = 0;
  int64_t leaps = 0;  // that these steps were in
  int64_t preemptions = 0;
  int64_t prompt_tokens = 0;  // computed, again counted again
  int64_t output_tokens = 0;
  int64_t rows = 0;         // of all steps
  double busy_seconds = 0;  // of a lane, all lanes together
  std::vector<double> stage_busy_seconds;
  std::vector<double> stage_busy_while_coming_seconds;  // of them, until the last arrival
  std::vector<double> hop_busy_seconds;
};

class SimulatedReplica {
 public:
  SimulatedReplica(int index, ReplicaSetup setup, const SteppingOptions& options,
                   ReplicaListener* listener);

  const ReplicaSetup& setup() const { return setup_; }
  const ReplicaCounters& counters() const { return counters_; }
  bool ready() const { return load_.ready; }
  int64_t incarnation() const { return incarnation_; }

  // End of the earliest step or leap; infinite when idle.
  double next_end_seconds() const { return next_end_; }
  // Ends the steps that end at next_end_seconds().
  void EndSteps();
  // Starts steps in idle lanes. Call after everything else of this moment.
  void Start(double now);

  // Queues it and counts it in the load.
  void Submit(SimulatedSequence sequence, double now);
  // Takes blocks for KV to come, as the batcher admits: one block more per running sequence must be
  // free; and a place for its states. False: not now.
  bool Reserve(int64_t blocks, double now);
  // Gives both back.
  void Unreserve(int64_t blocks, double now);
  // A sequence whose KV has come into `reserved_blocks` decodes on. Its load was counted before.
  void Join(SimulatedSequence sequence, int64_t reserved_blocks, double now);
  // Gives back blocks that a finished sequence kept.
  void Release(int64_t blocks, double now);
  // Counts work for the router that comes later through Join.
  void Expect(int64_t output_tokens) { NoteSubmitted(0, 1, output_tokens, &load_); }
  void Unexpect(int64_t output_tokens) { NoteSubmitted(0, -1, -output_tokens, &load_); }

  // As the router sees it, after all steps that ended before `now` (or at it).
  const ReplicaLoad& LoadAt(double now, bool including_now);

  // The device is gone: ends nothing and gives back every sequence with what it emitted.
  std::vector<SimulatedSequence> Lose(double now);
  void Recover();
  // From the next step on, times are `factor` times the table's.
  void SetSlowdown(double factor, double now);
  // Something happens here that changes nothing by itself.
  void StopLeaps(double now) { Cut(now); }

  // What a byte takes longer over each hop than the cost table says, from the next step on.
  // `started`: the steps that start now have started.
  void SetHopDelays(const std::vector<double>& seconds_per_byte, double now, bool started);
  // What the steps in progress send over each hop, on average over their time.
  double activation_bytes_per_second() const;

  int64_t free_blocks() const { return free_blocks_; }
  // State of the blocks and the queue, for pictures.
  int64_t used_blocks(double now);
  int64_t running_sequences() const;
  int64_t waiting_sequences() const { return static_cast<int64_t>(waiting_.size()); }

  // Blocks held, kept and free add up; no sequence has computed more than it knows.
  absl::Status CheckInvariants() const;

 private:
  struct Scheduled {
    size_t index;  // into running
    int64_t rows;
    int64_t drafts = 0;  // beside them
  };
  struct Lane {
    std::vector<SimulatedSequence> running;  // ranked; as they were `leapt` steps ago
    bool busy = false;
    bool leaping = false;
    double start = 0;
    double slowdown = 1;               // that the leap was computed with
    std::vector<double> ends;          // of the steps in progress; one without a leap
    std::vector<int64_t> taken;        // blocks, up to and with each of these steps
    size_t noted = 0;                  // of these steps, counted in load_
    std::vector<Scheduled> scheduled;  // of a planned step
    std::vector<double> hop_delays;    // that the leap was computed with
    // What the first step of its kind (as many decoding rows, as many prompt tokens) sent.
    double sent_decode_rows = 0, sent_prefill_tokens = 0;
    double bytes_per_second = 0;
    // For leaps.
    bool decoding = false;             // every sequence has one token to compute
    int64_t leapt = 0;                 // steps since `running` was written
    int64_t least_left = 0;            // tokens until the first finishes, as of then
    double context = 0;                // tokens computed, all sequences, as of then
    double last_end = 0;               // of its last step
    std::vector<int64_t> block_needs;  // sequences that need a block in step i, modulo block size
    int64_t blocked_epoch = -1;        // epoch_ at which the batcher admitted nobody
  };
  using RankKey = std::pair<double, int64_t>;
  class LaneStarter;

  // Steps (replica_step.cc).
  bool LacksBlocks(int64_t running) const;
  bool TryLeap(Lane& lane, double now);
  bool TryPlannedStep(Lane& lane, double now);
  void FillSnapshots(Lane& lane);
  // Tokens that it will have in the end, `more` beyond those it knows, as far as answers tell.
  int64_t ExpectedTokens(const SimulatedSequence& sequence, int64_t more) const;
  bool ApplyPlan(Lane& lane, double now);
  void GiveBack(Lane& lane, double now);
  void TakeJoining(Lane& lane);
  StepWork WorkOf(const Lane& lane) const;
  // Whether it decodes: one token, and what it computes once more.
  static bool Decodes(const SimulatedSequence& sequence, int64_t rows);
  double Pass(double start, std::span<const StageTime> times);
  void EndLane(Lane& lane);
  void EndPlannedStep(Lane& lane, double now);
  int64_t DraftsOf(const Lane& lane);
  // Takes up what a decoding step gave it. Returns the tokens.
  int64_t EndDrafts(const Scheduled& scheduled, SimulatedSequence* sequence);
  void EmitToken(SimulatedSequence& sequence, double now);
  void FinishSequences(Lane& lane, double now);
  void Refresh(Lane& lane);
  void CommitLeap(Lane& lane, size_t steps);
  void WriteLeapt(Lane& lane);
  void NoteLeapt(Lane& lane, double now, bool including_now);
  void MergeLanes();

  std::span<const StageTime> TimesOf(const StepWork& work);
  void NoteSent(Lane& lane, const StepWork& work, double seconds);
  // Behind the step that ends now or is in progress; `started`: behind the one in progress.
  void Cut(double now, bool started = false);
  void UpdateNextEnd();
  void Requeue(SimulatedSequence sequence);
  // BlocksFor without a division, which is most of a planned step, where a shift does.
  int64_t Blocks(int64_t tokens) const {
    const int64_t block = setup_.limits.block_tokens;
    return block_shift_ >= 0 ? (tokens + block - 1) >> block_shift_ : BlocksFor(tokens, block);
  }

  const int index_;
  const ReplicaSetup setup_;
  const SteppingOptions options_;
  ReplicaListener* const listener_;
  BatchLimits lane_limits_;
  int block_shift_ = -1;  // of tokens to blocks, where these have a power of two

  ReplicaLoad load_;
  ReplicaCounters counters_;
  std::vector<Lane> lanes_;
  std::map<RankKey, SimulatedSequence> waiting_;
  std::vector<SimulatedSequence> joining_;
  int64_t free_blocks_ = 0;
  int64_t kept_blocks_ = 0;  // reserved, or of finished sequences
  int64_t arriving_ = 0;     // sequences with a reservation that have not come yet
  int64_t epoch_ = 0;        // grows when somebody who waits might be admitted
  int64_t incarnation_ = 0;
  double slowdown_ = 1;
  std::vector<double> hop_delays_;  // empty: none
  double next_end_;
  std::vector<double> stage_free_, hop_free_;  // when the stage or hop has done its last step

  AnswerLengths answers_;
  DraftChooser drafts_;

  // Reused memory.
  std::vector<RunningSequence> running_snapshot_;
  std::vector<GrowingSequence> beside_snapshot_;
  std::vector<WaitingSequence> waiting_snapshot_;
  StepPlan plan_;
  std::vector<StageTime> times_;
  struct DecodeLine {
    std::vector<StageTime> base;  // at context 0
    std::vector<double> slope;    // of stages, per token
  };
  std::vector<DecodeLine> decode_lines_;  // by rows
};

}  // namespace tessera::scheduler
