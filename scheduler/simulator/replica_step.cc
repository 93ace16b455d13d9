// Steps of a simulated replica: leaps, planned steps, and what ends them.
#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "scheduler/lanes.h"
#include "scheduler/simulator/replica.h"

namespace tessera::scheduler {
namespace {

// Where the second point of a decode line is taken, tokens.
constexpr double kFarContext = 1 << 20;

bool RanksBefore(const SimulatedSequence& a, const SimulatedSequence& b) {
  return a.rank != b.rank ? a.rank < b.rank : a.order < b.order;
}

}  // namespace

std::span<const StageTime> SimulatedReplica::TimesOf(const StepWork& work) {
  const auto rows = static_cast<size_t>(work.decode_rows);
  if (work.prefill_tokens > 0 || work.draft_rows > 0 || !setup_.cost->linear_in_context()) {
    setup_.cost->Step(work, times_);
  } else {
    if (decode_lines_.size() <= rows) decode_lines_.resize(rows + 1);
    DecodeLine& line = decode_lines_[rows];
    if (line.base.empty()) {
      line.base.resize(times_.size());
      setup_.cost->Step(DecodeWork(work.decode_rows, 0), line.base);
      setup_.cost->Step(DecodeWork(work.decode_rows, kFarContext), times_);
      for (size_t j = 0; j < times_.size(); ++j) {
        line.slope.push_back((times_[j].stage_seconds - line.base[j].stage_seconds) /
                             (kFarContext * work.decode_rows));
      }
    }
    for (size_t j = 0; j < times_.size(); ++j) {
      times_[j] = line.base[j];
      times_[j].stage_seconds += line.slope[j] * work.decode_context_tokens;
    }
  }
  for (size_t j = 0; j < hop_delays_.size(); ++j)
    times_[j].hop_seconds += hop_delays_[j] * work.rows() * setup_.hop_bytes_per_row;
  if (slowdown_ != 1) {
    for (StageTime& time : times_) time.stage_seconds *= slowdown_;
  }
  return times_;
}

// Sends a step through the stages; each serves one step at a time, in the order of their coming.
double SimulatedReplica::Pass(double start, std::span<const StageTime> times) {
  double at = start;
  for (size_t j = 0; j < times.size(); ++j) {
    at = std::max(at, stage_free_[j]) + times[j].stage_seconds;
    stage_free_[j] = at;
    counters_.stage_busy_seconds[j] += times[j].stage_seconds;
    const double late = std::max(0.0, at - options_.coming_until_seconds);
    counters_.stage_busy_while_coming_seconds[j] += std::max(0.0, times[j].stage_seconds - late);
    if (times.size() == 1) continue;
    at = std::max(at, hop_free_[j]) + times[j].hop_seconds;
    hop_free_[j] = at;
    counters_.hop_busy_seconds[j] += times[j].hop_seconds;
  }
  return at;
}

// Steps of one kind follow each other with slowly growing times: what the first of them sends
// stands for all, whether they are leapt or not.
void SimulatedReplica::NoteSent(Lane& lane, const StepWork& work, double seconds) {
  if (setup_.hop_links.empty()) return;
  const bool same = lane.bytes_per_second > 0 && work.decode_rows == lane.sent_decode_rows &&
                    work.prefill_tokens == lane.sent_prefill_tokens;
  if (same) return;
  lane.sent_decode_rows = work.decode_rows;
  lane.sent_prefill_tokens = work.prefill_tokens;
  lane.bytes_per_second = seconds > 0 ? work.rows() * setup_.hop_bytes_per_row / seconds : 0;
}

// --- Leaps ---

// Whether there are no blocks for the first in the queue beside so many sequences, as long as none
// gives any back.
bool SimulatedReplica::LacksBlocks(int64_t running) const {
  const int64_t blocks = Blocks(waiting_.begin()->second.known_tokens);
  return blocks <= setup_.limits.total_blocks && blocks + running > free_blocks_;
}

bool SimulatedReplica::TryLeap(Lane& lane, double now) {
  const auto rows = static_cast<int64_t>(lane.running.size());
  // The batcher admits nobody without a place, and without blocks, of which a leap leaves fewer: it
  // need not be asked.
  const bool nobody_comes =
      joining_.empty() && (waiting_.empty() || lane.blocked_epoch == epoch_ ||
                           rows >= lane_limits_.max_sequences || LacksBlocks(rows));
  if (!options_.leaps || !lane.decoding || !nobody_comes || DraftsOf(lane) > 0) return false;
  const auto block = static_cast<size_t>(setup_.limits.block_tokens);
  // Lanes share stages and blocks, so each looks one step ahead only.
  const int64_t most = lanes_.size() > 1 ? 1 : lane.least_left - lane.leapt;
  lane.ends.clear();
  lane.taken.clear();
  int64_t taken = 0;
  double at = now;
  StepWork work = DecodeWork(static_cast<double>(rows), 0);
  for (int64_t i = 0; i < most; ++i) {
    const int64_t done = lane.leapt + i;
    taken += lane.block_needs[static_cast<size_t>(done) % block];
    if (taken > free_blocks_) break;
    work.decode_context_tokens = lane.context + static_cast<double>(rows * done);
    const std::span<const StageTime> times = TimesOf(work);
    if (lanes_.size() > 1) {
      at = Pass(at, times);
      free_blocks_ -= taken;
    } else {
      for (const StageTime& time : times) at = at + time.stage_seconds + time.hop_seconds;
    }
    lane.ends.push_back(at);
    lane.taken.push_back(lanes_.size() > 1 ? 0 : taken);
  }
  if (lane.ends.empty()) return false;
  lane.busy = lane.leaping = true;
  lane.start = now;
  lane.slowdown = slowdown_;
  lane.hop_delays = hop_delays_;
  lane.noted = 0;
  NoteSent(lane, work, lane.ends.front() - now);
  return true;
}

// `steps` of the leap have been run.
void SimulatedReplica::CommitLeap(Lane& lane, size_t steps) {
  lane.busy = lane.leaping = false;
  if (steps == 0) return;
  const double end = lane.ends[steps - 1];
  NoteLeapt(lane, end, true);
  if (options_.wants_tokens) {
    for (size_t i = 0; i < steps; ++i) {
      for (const SimulatedSequence& s : lane.running) listener_->OnToken(index_, s, lane.ends[i]);
    }
  }
  const auto count = static_cast<int64_t>(steps);
  const auto rows = static_cast<int64_t>(lane.running.size());
  if (lanes_.size() == 1) {
    free_blocks_ -= lane.taken[steps - 1];
    const double mean_done = static_cast<double>(lane.leapt) + static_cast<double>(count - 1) / 2;
    StepWork work = DecodeWork(static_cast<double>(rows), 0);
    work.decode_context_tokens = lane.context + static_cast<double>(rows) * mean_done;
    hop_delays_.swap(lane.hop_delays);  // they and the slowdown may have changed meanwhile
    const std::span<const StageTime> times = TimesOf(work);
    hop_delays_.swap(lane.hop_delays);
    const double slowed = lane.slowdown / slowdown_;
    const double coming =
        end > lane.start ? (options_.coming_until_seconds - lane.start) / (end - lane.start) : 1;
    for (size_t j = 0; j < times.size(); ++j) {
      const double busy = static_cast<double>(count) * times[j].stage_seconds * slowed;
      counters_.stage_busy_seconds[j] += busy;
      counters_.stage_busy_while_coming_seconds[j] += std::clamp(coming, 0.0, 1.0) * busy;
      counters_.hop_busy_seconds[j] += static_cast<double>(count) * times[j].hop_seconds;
    }
  }
  counters_.steps += count;
  counters_.leapt_steps += count;
  ++counters_.leaps;
  counters_.output_tokens += count * rows;
  counters_.rows += count * rows;
  counters_.busy_seconds += end - lane.start;
  lane.leapt += count;
  lane.last_end = end;
}

// Writes what was leapt into the sequences.
void SimulatedReplica::WriteLeapt(Lane& lane) {
  if (lane.leapt == 0) return;
  for (SimulatedSequence& s : lane.running) {
    s.known_tokens += lane.leapt;
    s.computed_tokens += lane.leapt;
    s.left_tokens -= lane.leapt;
    s.unspent_tokens -= lane.leapt;
    s.last_token_seconds = lane.last_end;
  }
  lane.leapt = 0;
}

// What leaps need to know of the sequences. `decoding` says whether each has one token to compute.
void SimulatedReplica::Refresh(Lane& lane) {
  const auto rows = static_cast<int64_t>(lane.running.size());
  lane.leapt = 0;
  if (!options_.leaps || rows == 0 || rows > setup_.limits.max_batched_tokens ||
      rows > setup_.limits.max_logit_rows) {
    lane.decoding = false;
  }
  if (!lane.decoding) return;
  const auto block = static_cast<uint32_t>(setup_.limits.block_tokens);
  lane.block_needs.assign(block, 0);
  lane.least_left = std::numeric_limits<int64_t>::max();
  int64_t context = 0;
  for (const SimulatedSequence& s : lane.running) {
    const uint32_t filled = static_cast<uint32_t>(s.computed_tokens) % block;
    ++lane.block_needs[filled == 0 ? 0 : block - filled];
    lane.least_left = std::min(lane.least_left, s.left_tokens);
    context += s.computed_tokens;
  }
  lane.context = static_cast<double>(context);
}

// --- Planned steps ---

bool SimulatedReplica::Decodes(const SimulatedSequence& sequence, int64_t rows) {
  return rows == 1 + sequence.repeated && sequence.computed_tokens + rows == sequence.known_tokens;
}

// Drafts of each sequence of the lane, whatever it leapt.
int64_t SimulatedReplica::DraftsOf(const Lane& lane) {
  if (!drafts_.any() || lane.running.empty()) return 0;
  double context = 0;
  for (const SimulatedSequence& s : lane.running)
    context += static_cast<double>(s.computed_tokens + lane.leapt);
  const auto sequences = static_cast<double>(lane.running.size());
  return drafts_.For(static_cast<int64_t>(lane.running.size()), context / sequences);
}

int64_t SimulatedReplica::ExpectedTokens(const SimulatedSequence& sequence, int64_t more) const {
  const int64_t emitted = sequence.known_tokens - sequence.prompt_tokens;
  return sequence.prompt_tokens +
         answers_.Expected(emitted + more, emitted + sequence.unspent_tokens);
}

void SimulatedReplica::FillSnapshots(Lane& lane) {
  const auto mine = static_cast<int64_t>(lane.running.size());
  const int64_t slots = std::min(kMaxAdmitted, lane_limits_.max_sequences - mine);
  // Others, and how long they get, are asked where a sequence may be admitted beside them, and cost
  // the most.
  const auto gives_back = [&](const SimulatedSequence& s) {  // it never fits
    return Blocks(s.known_tokens) > setup_.limits.total_blocks;
  };
  const bool admits = slots > 0 && !waiting_.empty() &&
                      (!LacksBlocks(mine) || std::ranges::any_of(lane.running, gives_back));
  const auto expected = [&](const SimulatedSequence& sequence, int64_t more) {
    return admits ? ExpectedTokens(sequence, more) : 0;
  };
  running_snapshot_.clear();
  const int64_t drafts = DraftsOf(lane);
  for (const SimulatedSequence& s : lane.running) {
    const int64_t held = Blocks(s.computed_tokens);
    // The last token of an answer is drawn behind the last draft at most.
    const bool decodes = Decodes(s, s.known_tokens - s.computed_tokens) && !s.prompt_pending;
    running_snapshot_.push_back({s.known_tokens, s.computed_tokens, held, held, false,
                                 expected(s, 0),
                                 decodes ? std::min(drafts, s.left_tokens - 1) : 0});
  }
  beside_snapshot_.clear();
  for (const Lane& other : lanes_) {
    if (&other == &lane || !admits) continue;
    for (const SimulatedSequence& s : other.running) {
      // Blocks of a step are taken when it starts.
      const int64_t rows = !other.busy ? 0 : other.leaping ? 1 : s.step_rows + s.step_drafts;
      beside_snapshot_.push_back({s.known_tokens + other.leapt,
                                  Blocks(s.computed_tokens + other.leapt + rows),
                                  ExpectedTokens(s, other.leapt)});
    }
  }
  waiting_snapshot_.clear();
  int64_t rows_left = lane_limits_.max_batched_tokens;  // at most, by those before
  for (const auto& [key, s] : waiting_) {
    if (!admits || rows_left <= 0 || static_cast<int64_t>(waiting_snapshot_.size()) >= slots) break;
    const int64_t block = setup_.limits.block_tokens;
    const int64_t cached = std::min(s.cached_tokens, s.known_tokens - 1) / block * block;
    waiting_snapshot_.push_back({s.known_tokens, cached, cached / block, false, expected(s, 0)});
    // Without its last row, for which there may be no logits. Who never fits takes none.
    if (Blocks(s.known_tokens) <= setup_.limits.total_blocks)
      rows_left -= s.known_tokens - cached - 1;
  }
}

// True: there are rows to run.
bool SimulatedReplica::ApplyPlan(Lane& lane, double now) {
  std::vector<SimulatedSequence> admitted;
  for (size_t i = 0; i < plan_.admitted_rows.size(); ++i) {
    auto first = waiting_.begin();
    SimulatedSequence sequence = std::move(first->second);
    waiting_.erase(first);
    if (plan_.admitted_rows[i] == kNeverFits) {
      Unexpect(sequence.unspent_tokens);
      if (sequence.prompt_pending) load_.queued_prompt_tokens -= sequence.prompt_tokens;
      listener_->OnNeverFits(index_, sequence, now);
      continue;
    }
    sequence.computed_tokens = waiting_snapshot_[i].cached_tokens;
    sequence.step_rows = plan_.admitted_rows[i];
    sequence.step_drafts = 0;
    free_blocks_ -= Blocks(sequence.computed_tokens);
    admitted.push_back(std::move(sequence));
  }
  if (!plan_.admitted_rows.empty()) ++epoch_;  // another is the first in the queue
  GiveBack(lane, now);
  const auto middle = static_cast<std::ptrdiff_t>(lane.running.size());
  lane.running.insert(lane.running.end(), admitted.begin(), admitted.end());
  std::inplace_merge(lane.running.begin(), lane.running.begin() + middle, lane.running.end(),
                     RanksBefore);
  lane.scheduled.clear();
  for (size_t i = 0; i < lane.running.size(); ++i) {
    const SimulatedSequence& sequence = lane.running[i];
    const int64_t rows = sequence.step_rows, computed = sequence.computed_tokens;
    if (rows == 0) continue;
    lane.scheduled.push_back({i, rows, sequence.step_drafts});
    free_blocks_ -= Blocks(computed + rows + sequence.step_drafts) - Blocks(computed);
  }
  return !lane.scheduled.empty();
}

// Keeps those who run on, puts the others where they go.
void SimulatedReplica::GiveBack(Lane& lane, double now) {
  size_t kept = 0;
  bool gave = false;
  for (size_t i = 0; i < plan_.running_rows.size(); ++i) {
    const int32_t rows = plan_.running_rows[i];
    SimulatedSequence& sequence = lane.running[i];
    if (rows >= 0) {
      sequence.step_rows = rows;
      sequence.step_drafts = plan_.draft_rows[i];
      if (kept != i) lane.running[kept] = std::move(sequence);
      ++kept;
      continue;
    }
    gave = true;
    free_blocks_ += Blocks(sequence.computed_tokens);
    sequence.computed_tokens = 0;
    sequence.repeated = 0;
    if (rows == kPreempted) {
      ++counters_.preemptions;
      listener_->OnPreempted(index_, sequence, now);
      Requeue(std::move(sequence));
    } else {
      Unexpect(sequence.unspent_tokens);
      if (sequence.prompt_pending) load_.queued_prompt_tokens -= sequence.prompt_tokens;
      listener_->OnNeverFits(index_, sequence, now);
    }
  }
  lane.running.resize(kept);
  if (gave) ++epoch_;
}

StepWork SimulatedReplica::WorkOf(const Lane& lane) const {
  StepWork work;
  for (const Scheduled& s : lane.scheduled) {
    const SimulatedSequence& sequence = lane.running[s.index];
    const auto computed = static_cast<double>(sequence.computed_tokens);
    const bool last = sequence.computed_tokens + s.rows == sequence.known_tokens;
    if (Decodes(sequence, s.rows)) {
      work.decode_rows += 1;
      work.decode_context_tokens += computed;
      work.sampled_rows += 1 + static_cast<double>(s.drafts);
      work.draft_rows += static_cast<double>(sequence.repeated + s.drafts);
      work.draft_passes = std::max(work.draft_passes, static_cast<int>(s.drafts));
    } else {
      const auto rows = static_cast<double>(s.rows);
      work.prefill_tokens += rows;
      work.prefill_attention_pairs += rows * computed + rows * rows / 2;
      work.prefill_cached_tokens += computed;
      work.sampled_rows += last ? 1 : 0;
    }
  }
  return work;
}

// No lane takes more than its part of all sequences.
void SimulatedReplica::TakeJoining(Lane& lane) {
  const auto mine = static_cast<int64_t>(lane.running.size());
  const int64_t quota = JoinQuota(running_sequences(), mine, static_cast<int64_t>(lanes_.size()));
  const auto joining = static_cast<int64_t>(joining_.size());
  int64_t most = quota;
  if (setup_.seats > 0) most = std::min(most, setup_.seats - (running_sequences() - joining));
  const auto count = std::clamp<int64_t>(most, 0, joining);
  if (count == 0) return;
  std::sort(joining_.begin(), joining_.end(), RanksBefore);
  lane.running.insert(lane.running.end(), joining_.begin(), joining_.begin() + count);
  std::inplace_merge(lane.running.begin(), lane.running.begin() + mine, lane.running.end(),
                     RanksBefore);
  joining_.erase(joining_.begin(), joining_.begin() + count);
  if (setup_.exchanges > 0) listener_->OnJoined(index_);
}

bool SimulatedReplica::TryPlannedStep(Lane& lane, double now) {
  WriteLeapt(lane);
  // What leaps know is of the past now, also if nothing comes of this plan.
  const bool decoding = std::exchange(lane.decoding, false);
  TakeJoining(lane);
  for (;;) {  // ends: a plan without rows that makes progress takes something out
    if (lane.running.empty() && waiting_.empty()) return false;
    FillSnapshots(lane);
    const int64_t epoch = epoch_;
    PlanStep(lane_limits_, {running_snapshot_, waiting_snapshot_, free_blocks_, beside_snapshot_},
             &plan_);
    ++counters_.plans;
    if (!plan_.MakesProgress()) return false;
    if (!ApplyPlan(lane, now)) continue;
    const bool all_decode = plan_.admitted_rows.empty() && epoch == epoch_ &&
                            plan_.rows == static_cast<int64_t>(lane.running.size());
    if (all_decode && decoding && !plan_.waits_for_growth) lane.blocked_epoch = epoch_;
    break;
  }
  const StepWork work = WorkOf(lane);
  const double end = Pass(now, TimesOf(work));
  NoteSent(lane, work, end - now);
  lane.busy = true;
  lane.leaping = false;
  lane.start = now;
  lane.ends.assign(1, end);
  lane.taken.assign(1, 0);
  for (const Scheduled& s : lane.scheduled) {
    SimulatedSequence& sequence = lane.running[s.index];
    if (sequence.started_seconds >= 0) continue;
    sequence.started_seconds = now;
    listener_->OnStarted(index_, sequence, now, end);
  }
  return true;
}

void SimulatedReplica::EndLane(Lane& lane) {
  const double now = lane.ends.back();
  if (!lane.leaping) return EndPlannedStep(lane, now);
  CommitLeap(lane, lane.ends.size());
  if (lane.leapt < lane.least_left) return;
  WriteLeapt(lane);
  FinishSequences(lane, now);
  Refresh(lane);
}

void SimulatedReplica::EndPlannedStep(Lane& lane, double now) {
  lane.busy = false;
  counters_.busy_seconds += now - lane.start;
  ++counters_.steps;
  lane.decoding = lane.scheduled.size() == lane.running.size();
  double gap = 0;
  int64_t equal_gaps = 0;
  const auto note = [&] {
    if (equal_gaps > 0 && gap > 0) NoteTokenGap(equal_gaps, gap, &load_);
    equal_gaps = 0;
  };
  const auto end_rows = [&](const Scheduled& s) {
    SimulatedSequence& sequence = lane.running[s.index];
    const bool decodes = Decodes(sequence, s.rows);
    sequence.computed_tokens += s.rows;
    counters_.rows += s.rows + s.drafts;
    if ((s.rows > 1 && !decodes) || sequence.prompt_pending) counters_.prompt_tokens += s.rows;
    if (sequence.computed_tokens < sequence.known_tokens) {
      lane.decoding = false;
      return;
    }
    const int64_t tokens = EndDrafts(s, &sequence);
    if (!sequence.prompt_pending) {
      const double own = (now - sequence.last_token_seconds) / static_cast<double>(tokens);
      if (own != gap) note();
      gap = own;
      equal_gaps += tokens;
    }
    if (sequence.repeated > 0) lane.decoding = false;
    for (int64_t i = 0; i < tokens; ++i) EmitToken(sequence, now);
  };
  // As the engine hands tokens on: single rows first.
  for (const bool single : {true, false}) {
    for (const Scheduled& s : lane.scheduled) {
      if ((s.rows == 1) == single) end_rows(s);
    }
  }
  note();
  lane.last_end = now;
  FinishSequences(lane, now);
  Refresh(lane);
}

int64_t SimulatedReplica::EndDrafts(const Scheduled& scheduled, SimulatedSequence* sequence) {
  sequence->repeated = 0;
  if (scheduled.drafts == 0) return 1;
  const int64_t standing =
      drafts_.Standing(sequence->request, sequence->known_tokens, scheduled.drafts);
  const int64_t held = Blocks(sequence->computed_tokens + scheduled.drafts);
  if (setup_.cost->repeats_drafts()) {
    sequence->repeated = static_cast<int32_t>(standing);
  } else {
    sequence->computed_tokens += standing;
  }
  const int64_t given_back = held - Blocks(sequence->computed_tokens);
  if (given_back > 0) ++epoch_;
  free_blocks_ += given_back;
  return 1 + standing;
}

void SimulatedReplica::EmitToken(SimulatedSequence& sequence, double now) {
  if (options_.wants_tokens) listener_->OnToken(index_, sequence, now);
  ++sequence.known_tokens;
  --sequence.left_tokens;
  --sequence.unspent_tokens;
  sequence.last_token_seconds = now;
  ++counters_.output_tokens;
  --load_.outstanding_output_tokens;
  if (!sequence.prompt_pending) return;
  sequence.prompt_pending = false;
  NotePromptComputed(
      sequence.prompt_tokens,
      sequence.prompt_tokens - std::min(sequence.cached_tokens, sequence.prompt_tokens),
      now - sequence.started_seconds, &load_);
  listener_->OnFirstToken(index_, sequence, now);
}

void SimulatedReplica::FinishSequences(Lane& lane, double now) {
  size_t kept = 0;
  for (size_t i = 0; i < lane.running.size(); ++i) {
    SimulatedSequence& sequence = lane.running[i];
    if (sequence.left_tokens > 0) {
      if (kept != i) lane.running[kept] = sequence;
      ++kept;
      continue;
    }
    const int64_t held = Blocks(sequence.computed_tokens);
    (sequence.keep_blocks ? kept_blocks_ : free_blocks_) += held;
    Unexpect(sequence.unspent_tokens);
    answers_.Note(sequence.known_tokens - sequence.prompt_tokens);
    ++epoch_;
    listener_->OnFinished(index_, sequence, now);
  }
  lane.running.resize(kept);
}

}  // namespace tessera::scheduler
