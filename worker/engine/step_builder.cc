#include "worker/engine/step_builder.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <span>
#include <utility>

namespace tessera::worker {
namespace {

using Draw = EngineStep::Draw;
using Scheduled = EngineStep::Scheduled;
using ScoreRow = EngineStep::ScoreRow;

absl::Status OutgrewPool() {
  return absl::ResourceExhaustedError("the sequence has outgrown the KV pool");
}

// Those on which `draw` depends: `drafts` is the rest of their list.
std::span<const int32_t> DraftsBefore(const Draw& draw) {
  return {draw.drafts.data() - draw.drafts_before, static_cast<size_t>(draw.drafts_before)};
}

}  // namespace

StepBuilder::StepBuilder(const EngineOptions& options, SequenceTable* table, KvMemory* memory,
                         v1::EngineLoad* load)
    : options_(options),
      lane_limits_(scheduler::LimitsOfMicroBatch(options.limits, table->lanes())),
      table_(*table),
      memory_(*memory),
      states_(memory),
      load_(*load) {}

int64_t StepBuilder::ExpectedTokens(const Sequence& sequence) const {
  const Submission& submission = *sequence.submission;
  const int64_t answer =
      answers_.Expected(sequence.output_tokens(), submission.request.max_tokens());
  return std::min(submission.prompt_tokens + answer, LongestSequence(options_));
}

const scheduler::StepPlan& StepBuilder::Plan(int lane) {
  TakeSnapshots(lane);
  scheduler::PlanStep(lane_limits_, {running_, waiting_, memory_.free_blocks(), beside_}, &plan_);
  return plan_;
}

void StepBuilder::TakeSnapshots(int lane) {
  const auto running = table_.running(lane);
  // Counting exclusive blocks is the one part that costs O(blocks): only where a step could run out
  // of them.
  const int64_t most_wanted =
      static_cast<int64_t>(running.size()) +
      scheduler::BlocksFor(options_.limits.max_batched_tokens, options_.limits.block_tokens);
  const bool scarce = memory_.free_blocks() < most_wanted;
  running_.clear();
  DraftedStep drafted{static_cast<double>(running.size()), std::ssize(running),
                      memory_.has_seats()};
  drafts_.resize(std::max(drafts_.size(), running.size()));
  const bool plain = !options_.all_drafts && lengths_.WantsPlainStep(drafted.rows);
  for (const auto& sequence : running) {
    std::vector<int32_t>& drafts = drafts_[running_.size()];
    drafts.clear();
    if (!plain) Draft(sequence.get(), &drafted, &drafts);
    // One that ends with the step in flight, whichever token that draws, computes nothing more.
    const int64_t then = sequence->tokens_then();
    const bool ends = sequence->draws_in_flight > 0 &&
                      (sequence->output_then() >= sequence->submission->request.max_tokens() ||
                       then >= LongestSequence(options_));
    running_.push_back({then, ends ? then : sequence->computed_then(),
                        static_cast<int64_t>(sequence->blocks.blocks().size()),
                        scarce ? sequence->blocks.ExclusiveBlocks() : 0,
                        sequence->submission->NeedsScores(), ExpectedTokens(*sequence),
                        std::ssize(drafts),
                        StateKeeper::ChunkRows(sequence->states.stops, sequence->computed_then())});
  }
  beside_.clear();
  for (int other = 0; other < table_.lanes(); ++other) {
    if (other == lane) continue;
    for (const auto& sequence : table_.running(other)) {
      beside_.push_back({sequence->known_tokens(),
                         static_cast<int64_t>(sequence->blocks.blocks().size()),
                         ExpectedTokens(*sequence)});
    }
  }
  waiting_.clear();
  matches_.clear();
  stops_.clear();
  const auto slots = static_cast<size_t>(
      std::min({int64_t{scheduler::kMaxAdmitted}, memory_.free_seats(),
                lane_limits_.max_sequences - static_cast<int64_t>(running.size())}));
  int64_t window_room = WindowRoom(), exchanges = memory_.exchanges().free_seats();
  // The first one without room ends the list: were it passed over, shorter ones behind it could
  // keep it waiting for ever.
  for (const auto& [rank, sequence] : table_.waiting()) {
    if (waiting_.size() >= slots) break;
    if (memory_.has_windows()) {
      window_room -= memory_.WindowBlocksOf(ExpectedTokens(*sequence));
      // Alone it is tried whatever it is expected to need: nothing would ever make more room.
      if (window_room < 0 && (!waiting_.empty() || table_.running_count() > 0)) break;
    }
    if (memory_.HandsStatesOver(*sequence) && --exchanges < 0) break;
    matches_.push_back(memory_.Match(*sequence));
    const kvcache::PrefixMatch& match = matches_.back();
    const int64_t found = static_cast<int64_t>(match.blocks.size()) * memory_.block_tokens();
    stops_.push_back(states_.StopsOf(*sequence, match));
    waiting_.push_back({sequence->known_tokens(), found, match.idle_blocks,
                        sequence->submission->NeedsScores(), ExpectedTokens(*sequence),
                        StateKeeper::ChunkRows(stops_.back(), found)});
  }
}

void StepBuilder::Draft(Sequence* sequence, DraftedStep* so_far,
                        std::vector<int32_t>* drafts) const {
  const Submission& submission = *sequence->submission;
  const int64_t known = sequence->known_tokens();
  // Where states are kept, drafts that stood in the step before are computed again.
  const int64_t rows = known - sequence->computed_tokens;
  if (sequence->drafter == nullptr || sequence->steps_in_flight > 0 || submission.NeedsScores() ||
      sequence->computed_tokens < submission.prompt_tokens ||
      rows > (memory_.has_seats() ? 1 + options_.max_drafts : 1)) {
    return;
  }
  // The last token of an answer is drawn behind the last draft at most.
  const int64_t most = std::min(
      {options_.max_drafts, submission.request.max_tokens() - sequence->output_tokens() - 1,
       LongestSequence(options_) - known - 1, states_.DraftRows(*sequence)});
  if (most <= 0) return;
  sequence->drafter->Propose(sequence->tokens, most, drafts);
  // A row behind a token that cannot stand, or that ends the answer, is for nobody.
  size_t kept = 0;
  for (; kept < std::min(drafts->size(), static_cast<size_t>(most)); ++kept) {
    const int32_t id = (*drafts)[kept];
    if (id < 0 || id >= options_.vocabulary ||
        std::binary_search(submission.stop_ids.begin(), submission.stop_ids.end(), id)) {
      break;
    }
  }
  if (sequence->matcher != nullptr)
    kept = sequence->matcher->CountNext(std::span(*drafts).first(kept));
  if (kept == 0 && !drafts->empty()) sequence->drafter->NoteRefused(lengths_);
  if (kept > 0 && !options_.all_drafts) {
    kept = sequence->drafter->Choose(lengths_, static_cast<int64_t>(kept), so_far);
  }
  drafts->resize(kept);
}

// Window blocks are not the batcher's: no more sequences are shown to it than have room for their
// windows, beside what running ones still need for theirs and the rows of a step for themselves.
int64_t StepBuilder::WindowRoom() const {
  int64_t room = memory_.free_window_blocks() -
                 scheduler::BlocksFor(options_.limits.max_batched_tokens, memory_.block_tokens());
  if (!memory_.has_windows()) return room;
  for (int lane = 0; lane < table_.lanes(); ++lane) {
    for (const auto& sequence : table_.running(lane)) {
      const int64_t held =
          std::ssize(sequence->window_blocks.blocks()) - sequence->window_blocks.freed();
      room -= std::max<int64_t>(0, memory_.WindowBlocksOf(ExpectedTokens(*sequence)) - held);
    }
  }
  return room;
}

// Where answers get longer than expected, the last-ranked sequence gives way. A row waits where a
// step in flight frees blocks when it is back, or another lane has sequences: these free blocks, or
// come into this lane once no lane gets on.
bool StepBuilder::GrowWindows(int lane, EngineStep* step, TokenEvents* events) {
  bool waits = false;
  for (size_t i = 0; i < step->scheduled.size();) {
    Sequence* sequence = step->scheduled[i].sequence;
    // Drafts are guesses: what they need is given up before any sequence has to leave.
    if (!memory_.GrowWindow(sequence)) DropDrafts(&step->scheduled[i]);
    if (memory_.GrowWindow(sequence)) {
      ++i;
      continue;
    }
    const auto running = table_.running(lane);
    const bool others = std::any_of(running.begin(), running.end(),
                                    [](const auto& s) { return s->steps_in_flight > 0; }) ||
                        !beside_.empty();
    waits = waits || others;
    Sequence* gives_way = others ? nullptr : running.back().get();
    const Sequence* leaves_step = others ? sequence : gives_way;
    const auto left = std::find_if(step->scheduled.begin(), step->scheduled.end(),
                                   [&](const Scheduled& s) { return s.sequence == leaves_step; });
    if (left != step->scheduled.end()) {
      if (left - step->scheduled.begin() < static_cast<int64_t>(i)) --i;
      step->scheduled.erase(left);
    }
    if (gives_way == nullptr) continue;
    if (running.size() == 1) {
      table_.End(gives_way, absl::InternalError("the window pool is too small for one sequence"),
                 events);
      continue;
    }
    table_.Move(gives_way, SequenceState::kWaiting);
    load_.set_preemptions(load_.preemptions() + 1);
  }
  return waits;
}

// Blocks are given back first, found ones taken second, and new ones allocated last: allocation may
// evict.
bool StepBuilder::Schedule(int lane, double now_seconds, EngineStep* step, TokenEvents* events) {
  step->scheduled.clear();
  step->draft_ids.clear();
  // Chosen before anything moves: a sequence that is preempted joins the queue.
  std::vector<Sequence*> admitted;
  for (const auto& [rank, sequence] : table_.waiting()) {
    if (admitted.size() == plan_.admitted_rows.size()) break;
    admitted.push_back(sequence.get());
  }
  GiveBack(lane, step, events);
  for (size_t i = 0; i < admitted.size(); ++i) {
    const int32_t rows = plan_.admitted_rows[i];
    if (rows == scheduler::kNeverFits) {
      table_.End(admitted[i], OutgrewPool(), events);
      continue;
    }
    Admit(lane, admitted[i], i, now_seconds);
    step->scheduled.push_back({admitted[i], rows, 0});
  }
  std::stable_partition(step->scheduled.begin(), step->scheduled.end(),
                        [](const Scheduled& s) { return s.rows == 1; });
  // Only now, when all that is given back is free and all that was found is held.
  std::erase_if(step->scheduled, [&](const Scheduled& s) {
    if (s.sequence->blocks.Grow(s.sequence->computed_then() + s.rows)) return false;
    table_.End(s.sequence, absl::InternalError("the batcher planned more KV blocks than there are"),
               events);
    return true;
  });
  return memory_.has_windows() && GrowWindows(lane, step, events);
}

void StepBuilder::DropDrafts(Scheduled* scheduled) const {
  scheduled->rows -= std::ssize(scheduled->drafts);
  scheduled->drafts = {};
  scheduled->sequence->blocks.ShrinkTo(scheduled->sequence->computed_then() + scheduled->rows);
}

void StepBuilder::GiveBack(int lane, EngineStep* step, TokenEvents* events) {
  decided_.clear();
  for (const auto& sequence : table_.running(lane)) decided_.push_back(sequence.get());
  for (size_t i = 0; i < decided_.size(); ++i) {
    const int32_t rows = plan_.running_rows[i];
    if (rows == scheduler::kPreempted) {
      table_.Move(decided_[i], SequenceState::kWaiting);
      load_.set_preemptions(load_.preemptions() + 1);
    } else if (rows == scheduler::kNeverFits) {
      table_.End(decided_[i], OutgrewPool(), events);
    } else if (rows > 0) {
      const auto drafts = std::span(drafts_[i]).first(static_cast<size_t>(plan_.draft_rows[i]));
      const size_t before = step->draft_ids.size();
      step->draft_ids.insert(step->draft_ids.end(), drafts.begin(), drafts.end());
      step->scheduled.push_back(
          {decided_[i], rows + std::ssize(drafts), 0, std::span(step->draft_ids).subspan(before)});
    }
  }
}

void StepBuilder::Admit(int lane, Sequence* sequence, size_t waiting, double now_seconds) {
  const kvcache::PrefixMatch& match = matches_[waiting];
  memory_.Adopt(match, sequence);
  states_.Start(sequence, match, std::move(stops_[waiting]));
  sequence->seat.Take();  // as many as there are seats were shown to the batcher
  if (memory_.HandsStatesOver(*sequence)) {
    sequence->states.exchange = kvcache::Seat(&memory_.exchanges());
    sequence->states.exchange.Take();
  }
  const auto found = static_cast<int64_t>(match.blocks.size());
  const int64_t cached = found * memory_.block_tokens();
  sequence->computed_tokens = cached;
  sequence->indexed_blocks = found;
  sequence->node = match.node;
  Submission* submission = sequence->submission.get();
  if (!submission->started) {
    table_.Start(submission);
    if (submission->counts_as_cache) {
      submission->cached_tokens = static_cast<int32_t>(std::min(cached, submission->prompt_tokens));
      load_.set_prefix_queries_tokens(load_.prefix_queries_tokens() + submission->prompt_tokens);
      load_.set_prefix_hits_tokens(load_.prefix_hits_tokens() + submission->cached_tokens);
    }
  }
  if (!sequence->started) {
    sequence->started = true;
    sequence->started_seconds = now_seconds;
  }
  table_.Move(sequence, SequenceState::kRunning, lane);
}

void StepBuilder::Fill(EngineStep* step) const {
  step->arrays.Begin();
  for (Scheduled& s : step->scheduled) {
    const Sequence& sequence = *s.sequence;
    s.first_row = step->arrays.AddSequence(
        {sequence.tokens, sequence.submission->prompt_tokens, sequence.computed_then(), s.rows,
         &sequence.blocks, memory_.has_windows() ? &sequence.window_blocks : nullptr, s.drafts,
         sequence.last_draw, sequence.seat.number(), sequence.seat.owner()});
  }
  step->draft_tokens = static_cast<int32_t>(WantedDrafts(*step));
  states_.AddCopies(step);
  AddLogitRows(step);
  AddRequests(step);
}

int64_t StepBuilder::WantedDrafts(const EngineStep& step) const {
  int64_t wanted = -1;
  if (!options_.head_drafts) return wanted;
  const int64_t sequences = std::ssize(step.scheduled);
  DraftedStep next{static_cast<double>(sequences), sequences, memory_.has_seats()};
  for (const Scheduled& s : step.scheduled) {
    Drafter* drafter = s.sequence->drafter.get();
    if (drafter == nullptr || drafter->GaveUp()) continue;
    wanted = std::max<int64_t>(wanted, 0);
    const int64_t end = s.sequence->computed_then() + s.rows - std::ssize(s.drafts);
    if (end < s.sequence->tokens_then()) continue;  // it draws nothing
    wanted = std::max(wanted, options_.all_drafts
                                  ? options_.max_drafts
                                  : drafter->WantNext(lengths_, options_.max_drafts, &next));
  }
  return wanted;
}

// Order of logit rows: drawn without logprobs, drawn with, scored (see Sampler::Run).
void StepBuilder::AddLogitRows(EngineStep* step) {
  step->draws.clear();
  step->score_rows.clear();
  int32_t sums = 0;
  for (const Scheduled& s : step->scheduled) {
    Sequence* sequence = s.sequence;
    const Submission& submission = *sequence->submission;
    const int64_t first = sequence->computed_then(), end = first + s.rows;
    if (submission.NeedsScores()) {
      const int64_t next = static_cast<int64_t>(submission.prompt_logprobs.size());
      const int64_t last = std::min(end + 1, submission.prompt_tokens);
      const int64_t begin = std::max(first + 1, next);
      if (submission.request.mean_rows() && begin < last) ++sums;
      const int32_t sum = submission.request.mean_rows() ? sums : 0;
      for (int64_t position = begin; position < last; ++position) {
        const int32_t row = s.first_row + static_cast<int32_t>(position - 1 - first);
        step->score_rows.push_back({sequence, row, position, sum});
      }
    }
    const auto drafts = static_cast<int32_t>(s.drafts.size());
    if (end == sequence->tokens_then() + drafts &&
        submission.request.max_tokens() > sequence->output_then()) {
      const int32_t last_row = s.first_row + static_cast<int32_t>(s.rows) - 1;
      for (int32_t i = 0; i <= drafts; ++i) {
        step->draws.push_back({sequence, last_row - drafts + i, i, s.drafts.subspan(i)});
      }
    }
  }
  std::stable_partition(step->draws.begin(), step->draws.end(), [](const Draw& draw) {
    return draw.sequence->submission->request.top_logprobs() < 0;
  });
  for (const Draw& draw : step->draws) step->arrays.AddLogitRow(draw.row);
  for (const ScoreRow& score : step->score_rows) step->arrays.AddLogitRow(score.row);
}

// The grammar wins over bans that leave nothing of it.
void StepBuilder::MakeMask(const Draw& draw, std::vector<int32_t>* mask,
                           SampleRequest* sample) const {
  TokenMatcher& matcher = *draw.sequence->matcher;
  if (draw.drafts_before > 0) {
    matcher.FillMaskBehind(DraftsBefore(draw), *mask);
  } else {
    matcher.FillMask(*mask);
  }
  const auto masked = [mask](int32_t id) { return ((*mask)[id / 32] >> (id % 32) & 1) == 0; };
  const auto allowed = std::accumulate(
      mask->begin(), mask->end(), int64_t{0},
      [](int64_t sum, int32_t word) { return sum + std::popcount(static_cast<uint32_t>(word)); });
  const auto banned = std::count_if(sample->banned.begin(), sample->banned.end(),
                                    [&](int32_t id) { return !masked(id); });
  if (banned == allowed) sample->banned = {};
}

void StepBuilder::MakeMasks(EngineStep* step) const {
  for (size_t i = 0; i < step->draws.size(); ++i) {
    if (step->draws[i].sequence->matcher != nullptr)
      MakeMask(step->draws[i], &step->masks[i], &step->sample_requests[i]);
  }
}

// Behind drafts the sequence's own does not have them.
void StepBuilder::AddHistory(const Draw& draw, EngineStep* step, SampleRequest* sample) const {
  const TokenHistory& history = *draw.sequence->history;
  sample->history_ids = history.ids();
  sample->history_counts = history.counts();
  if (draw.drafts_before == 0) return;
  DraftHistory& longer = step->histories[step->sample_requests.size() - 1];
  longer.ids = history.ids();
  longer.counts = history.counts();
  for (const int32_t id : DraftsBefore(draw)) {
    const auto at = std::find(longer.ids.begin(), longer.ids.end(), id);
    if (at == longer.ids.end()) {
      longer.ids.push_back(id);
      longer.counts.push_back(1);
    } else {
      ++longer.counts[at - longer.ids.begin()];
    }
  }
  sample->history_ids = longer.ids;
  sample->history_counts = longer.counts;
}

void StepBuilder::AddBans(const Draw& draw, EngineStep* step, SampleRequest* sample) const {
  const Sequence& sequence = *draw.sequence;
  const Submission& submission = *sequence.submission;
  std::span<const int32_t> stop_ids;
  if (sequence.output_then() + draw.drafts_before < submission.request.min_tokens()) {
    stop_ids = submission.stop_ids;
  }
  auto output = std::span(sequence.tokens).subspan(submission.prompt_tokens);
  std::vector<int32_t> longer;
  if (draw.drafts_before > 0 && submission.bans.follow_output()) {
    const std::span<const int32_t> drafts = DraftsBefore(draw);
    longer.assign(output.begin(), output.end());
    longer.insert(longer.end(), drafts.begin(), drafts.end());
    output = longer;
  }
  // What it returns borrows nothing of the output.
  sample->banned =
      submission.bans.After(output, stop_ids, &step->bans[step->sample_requests.size() - 1]);
}

void StepBuilder::AddRequests(EngineStep* step) const {
  step->sample_requests.clear();
  step->make_masks = nullptr;
  step->bans.resize(std::max(step->bans.size(), step->draws.size()));
  step->masks.resize(step->bans.size());
  step->histories.resize(step->bans.size());
  for (const Draw& draw : step->draws) {
    Sequence& sequence = *draw.sequence;
    const Submission& submission = *sequence.submission;
    const v1::Submit& request = submission.request;
    SampleRequest& sample = step->sample_requests.emplace_back();
    sample.params = &request.sampling();
    sample.choice = sequence.rank.choice;
    sample.position = sequence.tokens_then() + draw.drafts_before;
    if (sequence.history != nullptr) AddHistory(draw, step, &sample);
    sample.top_logprobs = std::max(-1, request.top_logprobs());
    sample.final_row = request.final_rows();
    sample.logprob_ids = {request.logprob_ids().data(),
                          static_cast<size_t>(request.logprob_ids_size())};
    AddBans(draw, step, &sample);
    if (sequence.matcher == nullptr) continue;
    std::vector<int32_t>& mask = step->masks[step->sample_requests.size() - 1];
    mask.resize((options_.vocabulary + 31) / 32);
    sample.mask = mask;
    step->make_masks = [this, step] { MakeMasks(step); };
  }
  step->score_requests.clear();
  for (const ScoreRow& score : step->score_rows) {
    const v1::Submit& request = score.sequence->submission->request;
    step->score_requests.push_back({request.prompt_token_ids(static_cast<int>(score.position)),
                                    request.prompt_logprobs(), score.sum});
  }
}

}  // namespace tessera::worker
