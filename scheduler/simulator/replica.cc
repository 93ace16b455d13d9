#include "scheduler/simulator/replica.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "scheduler/lanes.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

SimulatedReplica::SimulatedReplica(int index, ReplicaSetup setup, const SteppingOptions& options,
                                   ReplicaListener* listener)
    : index_(index),
      setup_(std::move(setup)),
      options_(options),
      listener_(listener),
      lane_limits_(LimitsOfMicroBatch(setup_.limits, std::max(1, setup_.micro_batches))),
      next_end_(kInfinity),
      drafts_(setup_.cost.get(), std::max(1, setup_.micro_batches)) {
  const auto block = static_cast<uint64_t>(setup_.limits.block_tokens);
  if (std::has_single_bit(block)) block_shift_ = std::countr_zero(block);
  const auto stages = static_cast<size_t>(setup_.cost->stages());
  lanes_.resize(static_cast<size_t>(std::max(1, setup_.micro_batches)));
  counters_.stage_busy_seconds.assign(stages, 0);
  counters_.stage_busy_while_coming_seconds.assign(stages, 0);
  counters_.hop_busy_seconds.assign(stages, 0);
  stage_free_.assign(stages, 0);
  hop_free_.assign(stages, 0);
  times_.resize(stages);
  Recover();
  load_.ready = setup_.ready;
}

void SimulatedReplica::Recover() {
  load_ = ReplicaLoad();
  load_.ready = true;
  load_.can_prefill = setup_.role != Role::kDecode;
  load_.can_decode = setup_.role != Role::kPrefill;
  load_.max_sequences = setup_.limits.max_sequences;
  load_.kv_tokens = setup_.limits.total_blocks * setup_.limits.block_tokens;
  load_.prefill_tokens_per_second = setup_.prefill_tokens_per_second;
  load_.decode_tokens_per_second = setup_.decode_tokens_per_second;
  free_blocks_ = setup_.limits.total_blocks;
  kept_blocks_ = 0;
  arriving_ = 0;
}

void SimulatedReplica::Requeue(SimulatedSequence sequence) {
  const RankKey key{sequence.rank, sequence.order};
  // Behind somebody who does not fit nobody is looked at.
  if (waiting_.empty() || key < waiting_.begin()->first) ++epoch_;
  waiting_.emplace(key, std::move(sequence));
}

void SimulatedReplica::Submit(SimulatedSequence sequence, double now) {
  Cut(now);
  sequence.last_token_seconds = now;
  sequence.prompt_tokens = sequence.known_tokens;
  sequence.repeated = 0;
  NoteSubmitted(sequence.known_tokens, 1, sequence.unspent_tokens, &load_);
  Requeue(std::move(sequence));
}

bool SimulatedReplica::Reserve(int64_t blocks, double now) {
  const int64_t on_their_way = arriving_ + static_cast<int64_t>(joining_.size());
  if (setup_.exchanges > 0 && on_their_way >= setup_.exchanges) return false;
  // Blocks of the steps in progress are taken already; those of later steps are not.
  int64_t taken = 0;
  for (const Lane& lane : lanes_) {
    if (!lane.busy || !lane.leaping) continue;
    const auto in_progress = std::lower_bound(lane.ends.begin(), lane.ends.end(), now);
    taken += lane.taken[static_cast<size_t>(in_progress - lane.ends.begin())];
  }
  if (free_blocks_ - taken < blocks + running_sequences()) return false;
  Cut(now);
  free_blocks_ -= blocks;
  kept_blocks_ += blocks;
  ++arriving_;
  return true;
}

void SimulatedReplica::Unreserve(int64_t blocks, double now) {
  --arriving_;
  Release(blocks, now);
}

void SimulatedReplica::Join(SimulatedSequence sequence, int64_t reserved_blocks, double now) {
  Cut(now);
  const int64_t held = Blocks(sequence.computed_tokens);
  --arriving_;
  kept_blocks_ -= reserved_blocks;
  free_blocks_ += reserved_blocks - held;
  sequence.prompt_pending = false;
  joining_.push_back(std::move(sequence));
  ++epoch_;
}

void SimulatedReplica::Release(int64_t blocks, double now) {
  Cut(now);
  kept_blocks_ -= blocks;
  free_blocks_ += blocks;
  ++epoch_;
}

// Ends every leap with the step that is in progress now.
void SimulatedReplica::Cut(double now, bool started) {
  for (Lane& lane : lanes_) {
    if (!lane.busy || !lane.leaping || lane.ends.size() == 1) continue;
    const auto in_progress = started ? std::upper_bound(lane.ends.begin(), lane.ends.end(), now)
                                     : std::lower_bound(lane.ends.begin(), lane.ends.end(), now);
    if (in_progress == lane.ends.end()) continue;
    lane.ends.erase(in_progress + 1, lane.ends.end());
    lane.taken.resize(lane.ends.size());
  }
  UpdateNextEnd();
}

void SimulatedReplica::UpdateNextEnd() {
  next_end_ = kInfinity;
  for (const Lane& lane : lanes_) {
    if (lane.busy) next_end_ = std::min(next_end_, lane.ends.back());
  }
}

void SimulatedReplica::EndSteps() {
  const double now = next_end_;
  for (Lane& lane : lanes_) {
    if (lane.busy && lane.ends.back() == now) EndLane(lane);
  }
  UpdateNextEnd();
}

// What StartLanes asks for, at one moment.
class SimulatedReplica::LaneStarter {
 public:
  LaneStarter(SimulatedReplica* replica, double now) : replica_(*replica), now_(now) {}

  int count() const { return static_cast<int>(replica_.lanes_.size()); }
  bool Busy(int lane) const { return replica_.lanes_[lane].busy; }
  bool Holds(int lane) const { return !replica_.lanes_[lane].running.empty(); }
  bool Start(int index) {
    Lane& lane = replica_.lanes_[index];
    if (replica_.TryLeap(lane, now_) || replica_.TryPlannedStep(lane, now_)) return true;
    lane.bytes_per_second = 0;
    return false;
  }
  void MergeIntoFirst() { replica_.MergeLanes(); }

 private:
  SimulatedReplica& replica_;
  const double now_;
};

void SimulatedReplica::Start(double now) {
  if (!load_.ready) return;
  LaneStarter starter(this, now);
  StartLanes(starter);
  UpdateNextEnd();
}

void SimulatedReplica::MergeLanes() {
  Lane& first = lanes_[0];
  for (Lane& lane : lanes_) {
    WriteLeapt(lane);
    if (&lane == &first) continue;
    first.running.insert(first.running.end(), lane.running.begin(), lane.running.end());
    lane.running.clear();
    lane.decoding = false;
  }
  std::sort(first.running.begin(), first.running.end(), [](const auto& a, const auto& b) {
    return std::pair(a.rank, a.order) < std::pair(b.rank, b.order);
  });
  ++epoch_;
}

void SimulatedReplica::SetSlowdown(double factor, double now) {
  Cut(now);
  slowdown_ = factor;
}

void SimulatedReplica::SetHopDelays(const std::vector<double>& seconds_per_byte, double now,
                                    bool started) {
  Cut(now, started);
  hop_delays_ = seconds_per_byte;
}

double SimulatedReplica::activation_bytes_per_second() const {
  double sum = 0;
  for (const Lane& lane : lanes_) sum += lane.bytes_per_second;
  return sum;
}

const ReplicaLoad& SimulatedReplica::LoadAt(double now, bool including_now) {
  for (Lane& lane : lanes_) {
    if (lane.busy && lane.leaping) NoteLeapt(lane, now, including_now);
  }
  return load_;
}

// Counts the tokens of leapt steps that have ended, as the coordinator would have.
void SimulatedReplica::NoteLeapt(Lane& lane, double now, bool including_now) {
  const auto tokens = static_cast<int64_t>(lane.running.size());
  for (; lane.noted < lane.ends.size(); ++lane.noted) {
    const double end = lane.ends[lane.noted];
    if (including_now ? end > now : end >= now) return;
    const double gap = end - (lane.noted == 0 ? lane.last_end : lane.ends[lane.noted - 1]);
    if (gap > 0) NoteTokenGap(tokens, gap, &load_);
    load_.outstanding_output_tokens -= tokens;
  }
}

std::vector<SimulatedSequence> SimulatedReplica::Lose(double now) {
  std::vector<SimulatedSequence> lost = std::move(joining_);
  joining_.clear();
  for (Lane& lane : lanes_) {
    if (lane.busy && lane.leaping) {
      const auto done = std::lower_bound(lane.ends.begin(), lane.ends.end(), now);
      CommitLeap(lane, static_cast<size_t>(done - lane.ends.begin()));
    }
    WriteLeapt(lane);
    lost.insert(lost.end(), lane.running.begin(), lane.running.end());
    lane = Lane();
  }
  for (const auto& [key, sequence] : waiting_) lost.push_back(sequence);
  waiting_.clear();
  std::fill(stage_free_.begin(), stage_free_.end(), 0);
  std::fill(hop_free_.begin(), hop_free_.end(), 0);
  load_.ready = false;
  ++incarnation_;
  ++epoch_;
  UpdateNextEnd();
  return lost;
}

int64_t SimulatedReplica::used_blocks(double now) {
  int64_t taken = 0;
  for (const Lane& lane : lanes_) {
    if (!lane.busy || !lane.leaping) continue;
    const auto in_progress = std::lower_bound(lane.ends.begin(), lane.ends.end(), now);
    if (in_progress == lane.ends.end()) continue;
    taken += lane.taken[static_cast<size_t>(in_progress - lane.ends.begin())];
  }
  return setup_.limits.total_blocks - free_blocks_ + taken;
}

int64_t SimulatedReplica::running_sequences() const {
  auto count = static_cast<int64_t>(joining_.size());
  for (const Lane& lane : lanes_) count += static_cast<int64_t>(lane.running.size());
  return count;
}

absl::Status SimulatedReplica::CheckInvariants() const {
  int64_t held = 0;
  const auto count = [&](const SimulatedSequence& sequence, int64_t more) {
    held += Blocks(sequence.computed_tokens + more);
    return sequence.computed_tokens + more < sequence.known_tokens + more + 1 &&
           sequence.left_tokens - more >= 0;
  };
  bool sane = true;
  for (const Lane& lane : lanes_) {
    // Several lanes take the blocks of a leapt step when it starts, one lane when it has ended.
    const bool taken = lane.busy && lane.leaping && lanes_.size() > 1;
    for (const SimulatedSequence& s : lane.running) sane &= count(s, lane.leapt + (taken ? 1 : 0));
    if (!lane.busy || lane.leaping) continue;
    for (const Scheduled& s : lane.scheduled) {  // their blocks are taken when a step starts
      const int64_t computed = lane.running[s.index].computed_tokens;
      held += Blocks(computed + s.rows + s.drafts) - Blocks(computed);
    }
  }
  for (const SimulatedSequence& s : joining_) sane &= count(s, 0);
  if (!sane)
    return absl::InternalError(
        StrCat(setup_.name, ": a sequence has computed more than it knows, or emitted too much"));
  if (held + kept_blocks_ + free_blocks_ == setup_.limits.total_blocks && free_blocks_ >= 0 &&
      kept_blocks_ >= 0) {
    return absl::OkStatus();
  }
  return absl::InternalError(StrCat(setup_.name, ": ", held, " blocks held, ", kept_blocks_,
                                    " kept, ", free_blocks_, " free of ",
                                    setup_.limits.total_blocks));
}

}  // namespace tessera::scheduler
