#include "scheduler/slowdown.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tessera::scheduler {
namespace {

constexpr double kSpacingSeconds = 0.25;  // observations closer than this are one
constexpr int64_t kMinSteps = 20;         // a ratio rests on so many
// Or on so much time: steps of large models are long.
constexpr double kMinSeconds = 1.5;
constexpr int64_t kMinLongSteps = 3;
// The newest interval's weight in what is known, at least: some ten minutes of quarter seconds.
constexpr double kNewestWeight = 1.0 / 2400;
constexpr double kSlowWeight = kNewestWeight / 4;  // the same of one in which it was slow
constexpr int64_t kMinSamples = 4;                 // of a size, to predict by it
constexpr int kSizesPerOctave = 4;
constexpr double kFall = 0.5;  // of what is too much of a factor, each half window

int BucketOf(double size) {
  return static_cast<int>(std::floor(kSizesPerOctave * std::log2(std::max(size, 0.25))));
}

// One kind of steps since the last observation.
struct Work {
  int64_t steps = 0;
  double seconds = 0;
  double tokens = 0;
  double size() const { return tokens / static_cast<double>(steps); }
  bool any() const { return steps > 0 && seconds > 0; }
};

}  // namespace

void StepHistory::Learn(double size, double seconds_per_step, bool usual) {
  const int bucket = BucketOf(size);
  if (!usual && !known_.contains(bucket)) return;
  Known& known = known_[bucket];
  if (usual) ++known.samples;
  const double weight =
      usual ? std::max(kNewestWeight, 1.0 / static_cast<double>(known.samples)) : kSlowWeight;
  known.size += weight * (size - known.size);
  known.seconds += weight * (seconds_per_step - known.seconds);
}

double StepHistory::Predict(double size) const {
  const Known* below = nullptr;
  for (const auto& [bucket, known] : known_) {
    if (known.samples < kMinSamples) continue;
    if (known.size <= size) {
      below = &known;
      continue;
    }
    if (below == nullptr) return known.seconds;
    const double part = (size - below->size) / (known.size - below->size);
    return below->seconds + part * (known.seconds - below->seconds);
  }
  if (below == nullptr) return 0;
  // Beyond what is known, in proportion: no step takes longer for each token.
  const bool beyond = BucketOf(size) > BucketOf(below->size);
  return below->seconds * (beyond ? size / below->size : 1);
}

double SlowdownWatch::Ratio(const Replica& replica) {
  int64_t steps = 0;
  double taken = 0, predicted = 0;
  for (const Interval& interval : replica.window) {
    steps += interval.steps;
    taken += interval.taken_seconds;
    predicted += interval.predicted_seconds;
  }
  const bool enough = steps >= kMinSteps || (steps >= kMinLongSteps && taken >= kMinSeconds);
  return enough && predicted > 0 ? taken / predicted : 0;
}

void SlowdownWatch::Observe(const std::string& replica, const StepTotals& totals,
                            double now_seconds) {
  Replica& of = replicas_[replica];
  const StepTotals& last = of.last;
  if (of.seen &&
      (totals.decode_steps < last.decode_steps || totals.prefill_steps < last.prefill_steps ||
       totals.decode_seconds < last.decode_seconds)) {
    of = Replica();
  }
  if (of.seen && now_seconds - of.last_seconds < kSpacingSeconds) return;
  Work decode = {totals.decode_steps - last.decode_steps,
                 totals.decode_seconds - last.decode_seconds};
  const Work prefill = {totals.prefill_steps - last.prefill_steps,
                        totals.prefill_seconds - last.prefill_seconds,
                        static_cast<double>(totals.prompt_tokens - last.prompt_tokens)};
  if (decode.steps > 0) {
    decode.tokens = static_cast<double>(totals.generation_tokens - last.generation_tokens) *
                    static_cast<double>(decode.steps) /
                    static_cast<double>(decode.steps + prefill.steps);
  }
  const bool first = !of.seen;
  of.last = totals;
  of.last_seconds = now_seconds;
  of.seen = true;
  std::erase_if(of.window, [&](const Interval& interval) {
    return interval.end_seconds <= now_seconds - kWindowSeconds;
  });
  if (first) return;  // what was before is not known to be usual
  Interval interval = {.end_seconds = now_seconds};
  const auto take = [&](const Work& work, StepHistory* times) {
    if (!work.any()) return;
    const double per_step = work.seconds / static_cast<double>(work.steps);
    if (const double predicted = times->Predict(work.size()); predicted > 0) {
      interval.steps += work.steps;
      interval.taken_seconds += work.seconds;
      interval.predicted_seconds += predicted * static_cast<double>(work.steps);
    }
    times->Learn(work.size(), per_step, of.factor == 1);
  };
  take(decode, &of.decode);
  take(prefill, &of.prefill);
  if (interval.steps > 0) of.window.push_back(interval);
}

void SlowdownWatch::Judge(double now_seconds) {
  for (auto& [name, replica] : replicas_) replica.own = Ratio(replica);
  for (auto& [name, replica] : replicas_) {
    if (replica.own == 0) continue;
    std::vector<double> others;
    for (const auto& [other, of] : replicas_) {
      if (other != name && of.own > 0) others.push_back(of.own);
    }
    double common = 1;
    if (!others.empty()) {
      const auto middle = others.begin() + static_cast<std::ptrdiff_t>((others.size() - 1) / 2);
      std::nth_element(others.begin(), middle, others.end());
      common = std::max(1.0, *middle);
    }
    const double ratio = replica.own / common;
    const bool slow = replica.factor > 1;
    if (ratio >= replica.factor) {
      if (slow || ratio > kSlowFrom) replica.factor = ratio;
    } else if (slow && now_seconds >= replica.lowered_seconds + kWindowSeconds / 2) {
      replica.lowered_seconds = now_seconds;
      replica.factor = std::max(1.0, replica.factor - kFall * (replica.factor - ratio));
      if (replica.factor < kUsualBelow) replica.factor = 1;
    }
  }
}

double SlowdownWatch::Of(const std::string& replica) const {
  const auto found = replicas_.find(replica);
  return found == replicas_.end() ? 1 : found->second.factor;
}

void SlowdownWatch::Forget(const std::string& replica) { replicas_.erase(replica); }

}  // namespace tessera::scheduler
