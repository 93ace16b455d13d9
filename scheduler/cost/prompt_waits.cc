#include "scheduler/cost/prompt_waits.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace tessera::scheduler {
namespace {

constexpr double kNegligible = 1e-9;  // beside the likeliest state
constexpr double kLarge = 1e100;      // weights beyond it are scaled

// Means over the states with k requests.
struct AtCount {
  double completions = 0;             // X
  double for_rows = 0, for_room = 0;  // requests that are held up
  double held_up = 0;                 // part of the newcomers that are
};

class Chain {
 public:
  Chain(const PromptsAsked& asked, const std::function<StepTimes(double)>& times_with)
      : asked_(asked),
        servers_(std::max(1, static_cast<int>(std::lround(asked.micro_batches)))),
        most_(static_cast<int>(asked.most)),
        last_place_(asked.most - most_) {
    for (int n = 0; n <= top(); ++n) times_.push_back(times_with(n));
    for (int j = 0; j <= servers_; ++j)
      slowed_.push_back(SlowedPart(static_cast<double>(j) / servers_, asked.stages));
  }

  // From here on another request is one more in the queue, and changes nothing else.
  int full() const { return top() + servers_; }

  AtCount At(int k) const {
    AtCount sum;
    double weight = 1, all = 0, largest = 0;
    for (int n = std::min(k, top()); n >= 0; --n) {
      const int j = k - n;
      const double ends = EndsPerSecond(n, j);
      const double held = HeldPart(n);
      all += weight;
      sum.completions += weight * ends;
      sum.for_room += weight * held * j;
      sum.for_rows += weight * (1 - held) * std::max(0, j - servers_);
      sum.held_up += weight * (j >= servers_ ? 1 : held);
      largest = std::max(largest, weight);
      if (n == 0) break;
      weight *= ends / BeginsPerSecond(n - 1, j + 1);
      if (weight < kNegligible * largest) break;
      if (weight < kLarge) continue;
      for (double* x : {&weight, &all, &largest, &sum.completions, &sum.for_room, &sum.for_rows,
                        &sum.held_up}) {
        *x /= kLarge;
      }
    }
    for (double* x : {&sum.completions, &sum.for_room, &sum.for_rows, &sum.held_up}) *x /= all;
    return sum;
  }

 private:
  int top() const { return most_ + (last_place_ > 0 ? 1 : 0); }

  // Of the time with n, in which nobody may join them.
  double HeldPart(int n) const {
    if (n < most_) return 0;
    return n > most_ || last_place_ <= 0 ? 1 : 1 - last_place_;
  }

  // m * P
  double RoundSeconds(int n, int j) const {
    const StepTimes& times = times_[static_cast<size_t>(n)];
    const double slowed = (1 - HeldPart(n)) * slowed_[static_cast<size_t>(std::min(j, servers_))];
    return times.lanes * (times.plain_seconds + slowed * times.more_seconds);
  }

  double EndsPerSecond(int n, int j) const {
    return n / (RoundSeconds(n, j) * asked_.decode_steps);
  }

  double BeginsPerSecond(int n, int j) const {
    return (1 - HeldPart(n)) * std::min(j, servers_) * times_[static_cast<size_t>(n)].prompt_rows /
           (asked_.prompt_tokens * RoundSeconds(n, j));
  }

  const PromptsAsked& asked_;
  const int servers_;
  const int most_;
  const double last_place_;
  std::vector<StepTimes> times_;  // by n
  std::vector<double> slowed_;    // by prompts that are computed
};

}  // namespace

double SlowedPart(double part_with_chunks, double stages) {
  return 1 - std::pow(1 - part_with_chunks, stages);
}

PromptWaits PromptWaitsAt(const PromptsAsked& asked,
                          const std::function<StepTimes(double)>& times_with) {
  const Chain chain(asked, times_with);
  const AtCount endless = chain.At(chain.full());
  PromptWaits waits;
  waits.most_per_second = endless.completions;
  if (asked.rate <= 0) return waits;
  if (asked.rate >= endless.completions) {
    waits.wait = {1, std::numeric_limits<double>::infinity()};
    return waits;
  }
  double weight = 1, all = 1, waiting = 0, held_up = 0;
  const auto add = [&](const AtCount& at, double more) {
    all += more;
    waiting += more * (asked.row_peakedness * at.for_rows + asked.room_peakedness * at.for_room);
    held_up += more * at.held_up;
  };
  for (int k = 1; k < chain.full(); ++k) {
    const AtCount at = chain.At(k);
    weight *= asked.rate / at.completions;
    add(at, weight);
    if (weight < kLarge) continue;
    for (double* x : {&weight, &all, &waiting, &held_up}) *x /= kLarge;
  }
  // The rest is geometric.
  const double ratio = asked.rate / endless.completions;
  const double beyond = weight * ratio / (1 - ratio), more_each = ratio / (1 - ratio);
  add(endless, beyond);
  const double room_part = endless.for_room / (endless.for_room + endless.for_rows);
  waiting += beyond * more_each *
             (room_part * asked.room_peakedness + (1 - room_part) * asked.row_peakedness);
  waits.wait.probability = held_up / all;
  if (held_up > 0) waits.wait.mean_seconds = waiting / (asked.rate * held_up);
  return waits;
}

}  // namespace tessera::scheduler
