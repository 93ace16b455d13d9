#include "worker/engine/state_keeper.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace tessera::worker {
namespace {

// Middle of the longest part between `from`, the stops and the end of the last one; 0: none is
// long.
int64_t Middle(int64_t from, const std::vector<int64_t>& stops, int64_t block_tokens) {
  int64_t longest = StateKeeper::kLongTokens - 1, middle = 0;
  for (const int64_t stop : stops) {
    const int64_t length = stop - from;
    if (length > longest) {
      longest = length;
      middle = (from + length / 2) / block_tokens * block_tokens;
    }
    from = stop;
  }
  return middle;
}

}  // namespace

std::vector<int64_t> StateKeeper::StopsOf(const Sequence& sequence,
                                          const kvcache::PrefixMatch& match) const {
  std::vector<int64_t> stops;
  const Submission& submission = *sequence.submission;
  if (!keeps() || submission.indexed_tokens == 0) return stops;
  const int64_t size = memory_.block_tokens();
  const int64_t found = static_cast<int64_t>(match.blocks.size()) * size;
  // The last token is always computed: its logits are wanted.
  const int64_t end = std::min(submission.prompt_tokens - 1, submission.indexed_tokens);
  const auto add = [&](int64_t tokens) {
    tokens = tokens / size * size;
    const bool is_there = std::find(stops.begin(), stops.end(), tokens) != stops.end();
    if (tokens > found && tokens <= end && !is_there && stops.size() < kMaxSaves) {
      stops.insert(std::upper_bound(stops.begin(), stops.end(), tokens), tokens);
    }
    return tokens;
  };
  add(end);
  add(submission.request.message_end_tokens());
  const int64_t begin = submission.request.message_begin_tokens();
  if (begin - found >= kSharedBlocks * size) add(begin);
  add(match.indexed_blocks * size);
  while (stops.size() < kMaxSaves) {
    const int64_t middle = Middle(found, stops, size);
    if (middle == 0) break;
    add(middle);
  }
  return stops;
}

int64_t StateKeeper::ChunkRows(const std::vector<int64_t>& stops, int64_t computed) {
  const auto next = std::upper_bound(stops.begin(), stops.end(), computed);
  return next == stops.end() ? std::numeric_limits<int64_t>::max() : *next - computed;
}

int64_t StateKeeper::DraftRows(const Sequence& sequence) const {
  const Submission& submission = *sequence.submission;
  if (!keeps() || !submission.counts_as_cache) return std::numeric_limits<int64_t>::max();
  const int64_t every = kAnswerBlocks * memory_.block_tokens(), known = sequence.known_tokens();
  return every - known % every - 1;
}

void StateKeeper::Start(Sequence* sequence, const kvcache::PrefixMatch& match,
                        std::vector<int64_t> stops) const {
  if (!memory_.has_seats()) return;
  SequenceStates& states = sequence->states;
  states.stops = std::move(stops);
  states.kept = match.node;
  states.source = memory_.snapshots().Use(match.node);
}

bool StateKeeper::KeepsBehind(const Sequence& sequence, int64_t tokens) const {
  const Submission& submission = *sequence.submission;
  if (tokens > submission.indexed_tokens) return false;
  const std::vector<int64_t>& stops = sequence.states.stops;
  if (std::find(stops.begin(), stops.end(), tokens) != stops.end()) return true;
  return tokens > submission.prompt_tokens && submission.counts_as_cache &&
         tokens % (kAnswerBlocks * memory_.block_tokens()) == 0;
}

void StateKeeper::AddCopies(EngineStep* step) const {
  step->restores.clear();
  step->saves.clear();
  if (!memory_.has_seats()) return;
  for (size_t i = 0; i < step->scheduled.size(); ++i) {
    EngineStep::Scheduled& s = step->scheduled[i];
    const auto index = static_cast<int32_t>(i);
    SequenceStates& states = s.sequence->states;
    const int64_t first = s.sequence->computed_then();
    const int64_t end = first + s.rows - std::ssize(s.drafts);
    if (states.source) {
      step->restores.push_back(
          {index, states.source.place(), states.source.name(), static_cast<int32_t>(first)});
      states.source.Clear();
    }
    if (std::exchange(states.arrived, false)) {
      step->restores.push_back(
          {index, StateCopy::Exchange(states.exchange.number()), 0, static_cast<int32_t>(first)});
      s.exchange = std::move(states.exchange);
    }
    if (!keeps() || !KeepsBehind(*s.sequence, end)) continue;
    // An older one of the same answer is of no use beside this one.
    if (end > s.sequence->submission->prompt_tokens) {
      memory_.snapshots().Erase(std::exchange(states.of_answer, 0));
    }
    s.save = memory_.snapshots().Reserve();
    if (!s.save) continue;
    step->saves.push_back({index, s.save.place(), s.save.name(), static_cast<int32_t>(end)});
  }
}

void StateKeeper::Keep(EngineStep::Scheduled* scheduled) const {
  scheduled->exchange.Clear();
  kvcache::SnapshotHold save = std::move(scheduled->save);
  if (!save) return;
  Sequence& sequence = *scheduled->sequence;
  const int64_t tokens = sequence.computed_tokens;
  if (sequence.indexed_blocks * memory_.block_tokens() != tokens) return;
  SequenceStates& states = sequence.states;
  Submission& submission = *sequence.submission;
  memory_.snapshots().Commit(save, sequence.node, tokens, states.kept);
  if (tokens > submission.prompt_tokens) {
    states.of_answer = sequence.node;
    return;
  }
  states.kept = sequence.node;
  const bool is_last = !states.stops.empty() && tokens == states.stops.back();
  if (is_last && !submission.held.empty()) {
    submission.prompt_state = memory_.snapshots().Use(sequence.node);
  }
}

}  // namespace tessera::worker
