// The batcher: which sequences run in the next step of one replica, and how many rows (tokens) of
// each. The engine of a leader and the simulator drive the same function.
//
// Problem: rows of a step, sequences at once, logit rows and KV blocks are all limited; decoding
// streams must keep their pace while long prompts are computed; nobody may starve; an exhausted
// pool must not deadlock.
//
// Rule, in this order (sequences are ranked by priority, then arrival; the caller passes them
// ranked):
//   1. Decodes first: every running sequence with one token to compute gets its row; then those
//      with kDecodeRows at most, which compute drafts that stood once more.
//   2. Prefill chunks: the other running sequences, best rank first, each take what the budget
//      still has. So a step never has more than max_batched_tokens rows, a decode runs in every
//      step, and the gap between two tokens of a stream is one step of the token budget, however
//      long the prompts beside it are.
//   3. Admission, best rank first, only when nothing was preempted in this step: a sequence starts
//      when the free blocks cover all its known tokens, what running sequences still need for
//      theirs, and one block more per running sequence (so that admitting it is not the cause of
//      the next preemption), and when no time comes at which the running ones, which grow to the
//      length that is expected of them, need more blocks together than are free or given back until
//      then. With nobody running its growth is no reason to wait. The first that does not fit stops
//      admission: later ones never overtake it, which is why it cannot starve.
//   4. Drafts, best rank first, only when nothing was preempted: rows, logit rows and blocks that
//      1 to 3 leave over. They are given back with the step where they do not stand.
//   Blocks: a running sequence that finds no free block takes the blocks of the last-ranked
//   sequence behind it, which is preempted (it goes back to waiting and is recomputed); with nobody
//   behind it, it stalls for this step. The best-ranked running sequence can always take, so every
//   step of a non-empty system makes progress. A sequence whose known tokens exceed the whole pool
//   is reported as kNeverFits and not waited for.
//   Micro-batches: with m of them in flight in a pipeline, queue and blocks are common and every
//   running sequence belongs to one. One whose step has come back plans the next, with the rows of
//   a step and its m-th part of the sequences as its limits (LimitsOfMicroBatch): it takes from the
//   queue's head what these allow. So no prompt waits for a place elsewhere while rows of a step go
//   unused, and micro-batches even out: the fewer rows decode in one, the more it has for prompts.
//   SGLang's pipeline deals so (pp_max_micro_batch_size, a shared queue); vLLM's first engine dealt
//   requests to one scheduler per stage as they came, its second one fills steps from one queue.
//
// Thread rule: pure function, deterministic, no clock. Cost: O(running + waiting looked at), with a
// logarithm where the pool is scarce;
// waiting sequences are looked at until the first that is not admitted. Memory: reuses the vectors
// of `plan`.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace tessera::scheduler {

// The defaults are what a worker takes where its plan says nothing, and what planner and simulator
// count on; CPUs and small GPUs get less from the coordinator (deployment/plan_terms.h).
struct BatchLimits {
  int64_t max_batched_tokens = 2048;  // rows of one step, >= 1
  int64_t max_sequences = 256;        // running at once, >= 1; never more than rows or logit rows
  int64_t max_logit_rows = 256;       // rows of one step whose logits are computed, >= 1
  int64_t block_tokens = 16;          // tokens per KV block
  int64_t total_blocks = 0;           // of the pool
};

// The most tokens that a sequence which decodes has to compute: where layers keep states, the
// drafts that stood in the step before, six at most, and the token behind them.
inline constexpr int64_t kDecodeRows = 7;

// For chunk_rows of running and waiting sequences: nothing but the step's limits ends a chunk.
inline constexpr int64_t kAnyRows = std::numeric_limits<int64_t>::max();

// A sequence that has been admitted.
struct RunningSequence {
  // Prompt and output; more than computed_tokens, or as many: then it computes nothing.
  int64_t known_tokens = 0;
  int64_t computed_tokens = 0;   // whose keys and values are in its blocks
  int64_t held_blocks = 0;       // in its block table
  int64_t exclusive_blocks = 0;  // of these, held by nobody else: what preempting it gives back
  bool needs_all_logits =
      false;  // each row costs a logit row (prompt logprobs), not just the last one
  int64_t expected_tokens = 0;  // known ones in the end (answer_lengths.h); 0: no more than now
  // Tokens to try behind its last one, in a step that computes all others. Each is a row and a
  // logit row.
  int64_t drafts = 0;
  int64_t chunk_rows = kAnyRows;  // that it has in one step at most
};

// A sequence that has not been admitted, or was preempted.
struct WaitingSequence {
  int64_t known_tokens = 0;
  int64_t cached_tokens = 0;  // found in the prefix cache: full blocks, fewer than known_tokens
  int64_t idle_cached_blocks = 0;  // of these blocks, those counted in free_blocks
  bool needs_all_logits = false;
  int64_t expected_tokens = 0;    // as of a running one
  int64_t chunk_rows = kAnyRows;  // likewise
};

// A sequence that runs beside those of a step: in another micro-batch, with the same pool.
struct GrowingSequence {
  int64_t known_tokens = 0;
  int64_t held_blocks = 0;
  int64_t expected_tokens = 0;
};

// Waiting sequences that a caller shows at most, and so the most that one step admits: what a step
// costs to plan does not grow with the queue.
inline constexpr int64_t kMaxAdmitted = 64;

struct StepSnapshot {
  std::span<const RunningSequence> running;  // ranked
  std::span<const WaitingSequence>
      waiting;              // ranked; may be cut after max_sequences or kMaxAdmitted
  int64_t free_blocks = 0;  // cached blocks that nobody holds included
  std::span<const GrowingSequence> beside = {};  // in any order
};

// Values of StepPlan rows that are not a count.
inline constexpr int32_t kPreempted = -1;  // give its blocks back, put it in the waiting queue
inline constexpr int32_t kNeverFits = -2;  // fail it: its known tokens exceed the pool

struct StepPlan {
  std::vector<int32_t>
      running_rows;  // one per running sequence: rows to compute, 0 stalls, or a value above
  std::vector<int32_t>
      admitted_rows;  // one per waiting sequence looked at and decided: rows >= 1, or kNeverFits
  std::vector<int32_t> draft_rows;  // one per running sequence: of its drafts, beside running_rows
  int64_t rows = 0;                 // of the step, all sequences together
  // The first that was not admitted waits for others to come nearer to their end, which they do
  // step by step: the next step may admit it though nothing else happens.
  bool waits_for_growth = false;

  bool MakesProgress() const;  // false: nothing runs, starts, or is given up
  bool GivesUpAny() const;     // a sequence is preempted or never fits
};

// The limits of one of `micro_batches` (>= 1) that share the limits of a replica.
BatchLimits LimitsOfMicroBatch(const BatchLimits& limits, int64_t micro_batches);

void PlanStep(const BatchLimits& limits, const StepSnapshot& snapshot, StepPlan* plan);

// Blocks that hold `tokens` tokens.
constexpr int64_t BlocksFor(int64_t tokens, int64_t block_tokens) {
  return (tokens + block_tokens - 1) / block_tokens;
}

}  // namespace tessera::scheduler
