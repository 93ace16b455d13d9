#include "scheduler/batcher.h"

#include <algorithm>

namespace tessera::scheduler {
namespace {

// The budgets of one step while it is being filled.
class StepFiller {
 public:
  StepFiller(const BatchLimits& limits, const StepSnapshot& snapshot, StepPlan* plan)
      : limits_(limits),
        snapshot_(snapshot),
        plan_(*plan),
        rows_left_(limits.max_batched_tokens),
        logits_left_(limits.max_logit_rows),
        free_blocks_(snapshot.free_blocks),
        victims_end_(static_cast<int64_t>(snapshot.running.size())) {
    plan_.running_rows.assign(snapshot.running.size(), 0);
    plan_.admitted_rows.clear();
  }

  void Fill() {
    for (size_t i = 0; i < snapshot_.running.size(); ++i) GiveUpIfTooLong(i);
    for (size_t i = 0; i < snapshot_.running.size(); ++i) {
      if (Remaining(i) == 1) RunRows(i);
    }
    for (size_t i = 0; i < snapshot_.running.size(); ++i) {
      if (Remaining(i) > 1) RunRows(i);
    }
    if (!preempted_) Admit();
    plan_.rows = limits_.max_batched_tokens - rows_left_;
  }

 private:
  int64_t Blocks(int64_t tokens) const { return BlocksFor(tokens, limits_.block_tokens); }

  int64_t Remaining(size_t i) const {
    return snapshot_.running[i].known_tokens - snapshot_.running[i].computed_tokens;
  }

  // Blocks that sequence `i` lacks for its first `tokens` tokens.
  int64_t Lacks(size_t i, int64_t tokens) const {
    return std::max<int64_t>(0, Blocks(tokens) - snapshot_.running[i].held_blocks);
  }

  // Rows of `wanted` that the row and logit budgets allow; the row that ends the known tokens needs
  // logits.
  int64_t WithinBudget(int64_t wanted, bool needs_all_logits) const {
    const int64_t rows = std::min(wanted, rows_left_);
    if (needs_all_logits) return std::min(rows, logits_left_);
    return rows == wanted && logits_left_ == 0 ? rows - 1 : rows;
  }

  // Logit rows that `rows` of `remaining` tokens cost.
  static int64_t LogitRows(int64_t rows, int64_t remaining, bool needs_all_logits) {
    if (needs_all_logits) return rows;
    return rows == remaining ? 1 : 0;
  }

  void GiveUpIfTooLong(size_t i) {
    if (Blocks(snapshot_.running[i].known_tokens) <= limits_.total_blocks) return;
    plan_.running_rows[i] = kNeverFits;
    free_blocks_ += snapshot_.running[i].exclusive_blocks;
  }

  // Preempts sequences ranked behind `i`, last first, until `blocks` are free or nobody is left.
  void MakeRoom(size_t i, int64_t blocks) {
    while (free_blocks_ < blocks && victims_end_ > static_cast<int64_t>(i) + 1) {
      const size_t victim = static_cast<size_t>(--victims_end_);
      const int32_t rows = plan_.running_rows[victim];
      if (rows == kNeverFits) continue;
      const RunningSequence& sequence = snapshot_.running[victim];
      if (rows > 0) {
        rows_left_ += rows;
        logits_left_ += LogitRows(rows, Remaining(victim), sequence.needs_all_logits);
        free_blocks_ += Lacks(victim, sequence.computed_tokens + rows);
      }
      free_blocks_ += sequence.exclusive_blocks;
      plan_.running_rows[victim] = kPreempted;
      preempted_ = true;
    }
  }

  void RunRows(size_t i) {
    if (plan_.running_rows[i] < 0) return;
    const RunningSequence& sequence = snapshot_.running[i];
    int64_t rows = WithinBudget(Remaining(i), sequence.needs_all_logits);
    if (rows <= 0) return;
    const int64_t wanted_blocks = Lacks(i, sequence.computed_tokens + rows);
    MakeRoom(i, wanted_blocks);
    if (wanted_blocks > free_blocks_) {  // as many rows as the blocks at hand can take
      const int64_t blocks = sequence.held_blocks + std::max<int64_t>(0, free_blocks_);
      rows = std::min(rows, blocks * limits_.block_tokens - sequence.computed_tokens);
      if (rows <= 0) return;
    }
    free_blocks_ -= Lacks(i, sequence.computed_tokens + rows);
    rows_left_ -= rows;
    logits_left_ -= LogitRows(rows, Remaining(i), sequence.needs_all_logits);
    plan_.running_rows[i] = static_cast<int32_t>(rows);
  }

  // Blocks that running sequences will still take for tokens they already know.
  int64_t OutstandingBlocks() const {
    int64_t blocks = 0;
    for (size_t i = 0; i < snapshot_.running.size(); ++i) {
      if (plan_.running_rows[i] < 0) continue;
      const RunningSequence& sequence = snapshot_.running[i];
      blocks += Lacks(i, sequence.known_tokens) -
                Lacks(i, sequence.computed_tokens + plan_.running_rows[i]);
    }
    return blocks;
  }

  void Admit() {
    const int64_t max_sequences =
        std::min({limits_.max_sequences, limits_.max_batched_tokens, limits_.max_logit_rows});
    int64_t running = 0;
    for (const int32_t rows : plan_.running_rows) running += rows >= 0 ? 1 : 0;
    int64_t available = free_blocks_ - OutstandingBlocks();
    for (const WaitingSequence& sequence : snapshot_.waiting) {
      if (Blocks(sequence.known_tokens) > limits_.total_blocks) {
        plan_.admitted_rows.push_back(kNeverFits);
        continue;
      }
      if (running >= max_sequences) return;
      const int64_t remaining = sequence.known_tokens - sequence.cached_tokens;
      const int64_t blocks = Blocks(sequence.known_tokens) -
                             sequence.cached_tokens / limits_.block_tokens +
                             sequence.idle_cached_blocks;
      const int64_t rows = WithinBudget(remaining, sequence.needs_all_logits);
      if (rows <= 0 || blocks + running > available) return;
      available -= blocks;
      rows_left_ -= rows;
      logits_left_ -= LogitRows(rows, remaining, sequence.needs_all_logits);
      plan_.admitted_rows.push_back(static_cast<int32_t>(rows));
      ++running;
    }
  }

  const BatchLimits& limits_;
  const StepSnapshot& snapshot_;
  StepPlan& plan_;
  int64_t rows_left_;
  int64_t logits_left_;
  int64_t free_blocks_;
  int64_t victims_end_;  // sequences from here on have been preempted or given up
  bool preempted_ = false;
};

}  // namespace

bool StepPlan::MakesProgress() const {
  if (rows > 0) return true;
  const auto decided = [](int32_t r) { return r != 0; };
  return std::any_of(running_rows.begin(), running_rows.end(), decided) ||
         std::any_of(admitted_rows.begin(), admitted_rows.end(), decided);
}

BatchLimits LimitsOfMicroBatch(const BatchLimits& limits, int64_t micro_batches) {
  BatchLimits own = limits;
  own.max_sequences = (limits.max_sequences + micro_batches - 1) / micro_batches;
  return own;
}

void PlanStep(const BatchLimits& limits, const StepSnapshot& snapshot, StepPlan* plan) {
  StepFiller(limits, snapshot, plan).Fill();
}

}  // namespace tessera::scheduler
