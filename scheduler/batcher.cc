#include "scheduler/batcher.h"

#include <algorithm>
#include <bit>
#include <optional>

namespace tessera::scheduler {
namespace {

// Whether what runs, grown to the length that is expected of it, finds blocks at every moment to
// come. Every sequence takes a token per step, so the most is needed just before one of them ends.
class Growth {
 public:
  Growth(int64_t free_blocks, int64_t block_tokens, size_t sequences)
      : free_tokens_(free_blocks * block_tokens), block_tokens_(block_tokens) {
    sequences_.reserve(sequences + kMaxAdmitted);
  }

  // A sequence that holds `held_blocks` of the pool, which it gives back in the end.
  void Add(int64_t known_tokens, int64_t held_blocks, int64_t expected_tokens) {
    const int64_t left = std::max<int64_t>(0, expected_tokens - known_tokens);
    grows_ = grows_ || left > 0;
    sequences_.push_back(
        {left, known_tokens - held_blocks * block_tokens_, held_blocks * block_tokens_});
    all_ += left + std::max<int64_t>(0, sequences_.back().beyond) + block_tokens_;
  }

  // With one more, whose `blocks` are taken now; it stays if it fits.
  bool AddIfItFits(int64_t blocks, int64_t known_tokens, int64_t expected_tokens) {
    const int64_t left = std::max<int64_t>(0, expected_tokens - known_tokens);
    if (!grows_ && left == 0) return true;
    const int64_t before = all_;
    sequences_.push_back({left, blocks * block_tokens_, 0});
    all_ += left + (blocks + 1) * block_tokens_;
    if (all_ <= free_tokens_ || Fits()) {
      grows_ = true;
      return true;
    }
    sequences_.pop_back();
    all_ = before;
    return false;
  }

 private:
  struct Sequence {
    int64_t left;    // tokens until it ends
    int64_t beyond;  // tokens that it knows beyond its blocks; negative: room in its last one
    int64_t held;    // tokens of room that its end gives back
  };

  bool Fits() {
    by_left_ = sequences_;
    std::sort(by_left_.begin(), by_left_.end(),
              [](const Sequence& a, const Sequence& b) { return a.left < b.left; });
    int64_t beyond = 0, given_back = 0;
    for (const Sequence& sequence : by_left_) beyond += sequence.beyond;
    auto alive = static_cast<int64_t>(by_left_.size());
    for (const Sequence& sequence : by_left_) {
      const int64_t wanted = beyond + alive * sequence.left - given_back;
      if (wanted > free_tokens_) return false;
      beyond -= sequence.beyond;
      given_back += sequence.held;
      --alive;
    }
    return true;
  }

  const int64_t free_tokens_, block_tokens_;
  bool grows_ = false;
  int64_t all_ = 0;  // tokens of room that all take, if none is given back
  std::vector<Sequence> sequences_, by_left_;
};

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
    const auto block = static_cast<uint64_t>(limits.block_tokens);
    if (std::has_single_bit(block)) block_shift_ = std::countr_zero(block);
    plan_.running_rows.assign(snapshot.running.size(), 0);
    plan_.draft_rows.assign(snapshot.running.size(), 0);
    plan_.admitted_rows.clear();
    plan_.waits_for_growth = false;
  }

  void Fill() {
    for (size_t i = 0; i < snapshot_.running.size(); ++i) GiveUpIfTooLong(i);
    RunThose(1, 1);
    RunThose(2, kDecodeRows);
    RunThose(kDecodeRows + 1, kAnyRows);
    if (!preempted_) {
      Admit();
      AddDrafts();
    }
    plan_.rows = limits_.max_batched_tokens - rows_left_;
  }

 private:
  // Asked several times of every sequence: without a division where a shift does.
  int64_t Blocks(int64_t tokens) const {
    const int64_t block = limits_.block_tokens;
    return block_shift_ >= 0 ? (tokens + block - 1) >> block_shift_ : BlocksFor(tokens, block);
  }

  int64_t Remaining(size_t i) const {
    return snapshot_.running[i].known_tokens - snapshot_.running[i].computed_tokens;
  }

  // Blocks that sequence `i` lacks for its first `tokens` tokens.
  int64_t Lacks(size_t i, int64_t tokens) const {
    return std::max<int64_t>(0, Blocks(tokens) - snapshot_.running[i].held_blocks);
  }

  // Rows of `wanted` that the row and logit budgets allow; the row that ends the known tokens needs
  // logits.
  int64_t WithinBudget(int64_t wanted, int64_t chunk_rows, bool needs_all_logits) const {
    const int64_t rows = std::min({wanted, chunk_rows, rows_left_});
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

  // Sequences with so many tokens to compute, best rank first.
  void RunThose(int64_t least, int64_t most) {
    for (size_t i = 0; i < snapshot_.running.size(); ++i) {
      if (Remaining(i) >= least && Remaining(i) <= most) RunRows(i);
    }
  }

  void RunRows(size_t i) {
    if (plan_.running_rows[i] < 0) return;
    const RunningSequence& sequence = snapshot_.running[i];
    int64_t rows = WithinBudget(Remaining(i), sequence.chunk_rows, sequence.needs_all_logits);
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

  Growth GrowthOfRunning() const {
    Growth growth(free_blocks_, limits_.block_tokens,
                  snapshot_.running.size() + snapshot_.beside.size());
    for (size_t i = 0; i < snapshot_.running.size(); ++i) {
      const int32_t rows = plan_.running_rows[i];
      if (rows < 0) continue;
      const RunningSequence& sequence = snapshot_.running[i];
      growth.Add(sequence.known_tokens,
                 sequence.held_blocks + Lacks(i, sequence.computed_tokens + rows),
                 sequence.expected_tokens);
    }
    for (const GrowingSequence& other : snapshot_.beside)
      growth.Add(other.known_tokens, other.held_blocks, other.expected_tokens);
    return growth;
  }

  void Admit() {
    const int64_t max_sequences =
        std::min({limits_.max_sequences, limits_.max_batched_tokens, limits_.max_logit_rows});
    int64_t running = 0;
    for (const int32_t rows : plan_.running_rows) running += rows >= 0 ? 1 : 0;
    int64_t available = free_blocks_ - OutstandingBlocks();
    std::optional<Growth> growth;
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
      const int64_t rows = WithinBudget(remaining, sequence.chunk_rows, sequence.needs_all_logits);
      if (rows <= 0 || blocks + running > available) return;
      if (!growth) growth.emplace(GrowthOfRunning());
      const bool alone = running == 0 && snapshot_.beside.empty();
      if (!growth->AddIfItFits(blocks, sequence.known_tokens, sequence.expected_tokens) && !alone) {
        plan_.waits_for_growth = true;
        return;
      }
      available -= blocks;
      free_blocks_ -= blocks;
      rows_left_ -= rows;
      logits_left_ -= LogitRows(rows, remaining, sequence.needs_all_logits);
      plan_.admitted_rows.push_back(static_cast<int32_t>(rows));
      ++running;
    }
  }

  // What nobody else takes: drafts never cost a sequence a row, or a block for tokens that it
  // knows.
  void AddDrafts() {
    int64_t free_blocks = free_blocks_;
    if (std::any_of(snapshot_.running.begin(), snapshot_.running.end(),
                    [](const RunningSequence& s) { return s.drafts > 0; })) {
      free_blocks -= OutstandingBlocks();
    }
    for (size_t i = 0; i < snapshot_.running.size(); ++i) {
      const RunningSequence& sequence = snapshot_.running[i];
      if (sequence.drafts == 0 || plan_.running_rows[i] != Remaining(i)) continue;
      const int64_t held = Lacks(i, sequence.known_tokens) + sequence.held_blocks;
      const int64_t room =
          (held + std::max<int64_t>(0, free_blocks)) * limits_.block_tokens - sequence.known_tokens;
      const int64_t rows = std::min({sequence.drafts, rows_left_, logits_left_, room});
      if (rows <= 0) continue;
      free_blocks -= std::max<int64_t>(0, Blocks(sequence.known_tokens + rows) - held);
      rows_left_ -= rows;
      logits_left_ -= rows;
      plan_.draft_rows[i] = static_cast<int32_t>(rows);
    }
  }

  const BatchLimits& limits_;
  const StepSnapshot& snapshot_;
  StepPlan& plan_;
  int64_t rows_left_;
  int64_t logits_left_;
  int64_t free_blocks_;
  int block_shift_ = -1;  // of tokens to blocks, where these have a power of two
  int64_t victims_end_;   // sequences from here on have been preempted or given up
  bool preempted_ = false;
};

}  // namespace

bool StepPlan::MakesProgress() const {
  if (rows > 0) return true;
  const auto decided = [](int32_t r) { return r != 0; };
  return std::any_of(running_rows.begin(), running_rows.end(), decided) ||
         std::any_of(admitted_rows.begin(), admitted_rows.end(), decided);
}

bool StepPlan::GivesUpAny() const {
  const auto given_up = [](int32_t r) { return r < 0; };
  return std::any_of(running_rows.begin(), running_rows.end(), given_up) ||
         std::any_of(admitted_rows.begin(), admitted_rows.end(), given_up);
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
