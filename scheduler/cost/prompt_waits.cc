#include "scheduler/cost/prompt_waits.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace tessera::scheduler {
namespace {

constexpr double kNegligible = 1e-9;  // beside the likeliest state
constexpr double kLarge = 1e100;      // weights beyond it are scaled
constexpr double kTolerance = 1e-5;   // of a part of the time
constexpr int kRounds = 30;

// Means over the states with k requests.
struct AtCount {
  double completions = 0;             // X
  double for_rows = 0, for_room = 0;  // requests that are held up
  double held_up = 0;                 // part of the newcomers that are
  double met = 0;                     // part of them that find prompts, or no room
  double alone = 0, stepping = 0;     // seconds: of those who find none, of the others
  double slowed = 0;                  // of what chunks in all steps take from the speed
};

void Divide(double by, AtCount* at) {
  for (double* x : {&at->completions, &at->for_rows, &at->for_room, &at->held_up, &at->met,
                    &at->alone, &at->stepping, &at->slowed}) {
    *x /= by;
  }
}

class Chain {
 public:
  Chain(const PromptsAsked& asked, const std::function<StepTimes(double)>& times_with)
      : asked_(asked),
        servers_(std::max(1, static_cast<int>(std::lround(asked.micro_batches)))),
        most_(static_cast<int>(asked.most)),
        last_place_(asked.most - most_) {
    double most_begun = 1;
    for (int n = 0; n <= top(); ++n) {
      times_.push_back(times_with(n));
      most_begun = std::max(most_begun, times_.back().prompts_begun);
    }
    all_busy_ = static_cast<int>(std::ceil(servers_ * most_begun));
    for (int n = 0; n <= top(); ++n) {
      ends_.push_back(n / (Times(n).lanes * asked.decode_steps * Times(n).plain_seconds));
      lost_.push_back(1 - Times(n).plain_seconds / PeriodSeconds(n, 1));
    }
    states_.resize((static_cast<size_t>(top()) + 1) * (static_cast<size_t>(all_busy_) + 1));
  }

  // From here on another request is one more in the queue, and changes nothing else.
  int full() const { return top() + all_busy_; }

  // The mean that R needs at one k after the other. It is smooth in k, so that the parabola through
  // the last three mostly is near enough to the next to need no second look.
  struct Slowed {
    double at[3] = {0, 0, 0};  // the last first
    int known = 0;             // of these
    double slope = 1;

    double Next() const {
      if (known < 2) return at[0];
      const double next = known == 2 ? 2 * at[0] - at[1] : 3 * (at[0] - at[1]) + at[2];
      return std::clamp(next, 0.0, 1.0);
    }

    void Add(double found) {
      at[2] = at[1];
      at[1] = at[0];
      at[0] = found;
      known = std::min(known + 1, 3);
    }
  };

  // The more chunks slow who decodes, the fewer prompts are there, so there is one such mean.
  AtCount At(int k, Slowed* slowed) {
    AtCount at;
    double x = slowed->Next(), before = 0, before_over = 0;
    for (int i = 0; i < kRounds; ++i) {
      at = With(k, x);
      const double over = at.slowed - x;
      if (std::abs(over) <= kTolerance) break;
      if (i > 0) slowed->slope = std::max(1.0, (before_over - over) / (x - before));
      before = std::exchange(x, std::clamp(x + over / slowed->slope, 0.0, 1.0));
      before_over = over;
      if (before == x) break;
    }
    slowed->Add(x);
    return at;
  }

 private:
  // What n and j alone determine: few of many are asked for.
  struct State {
    bool known = false;
    double busy = 0;        // c
    double begins = 0;      // part of the newcomers that find a micro-batch
    double slowed = 0;      // of what chunks in all steps take from the speed
    double per_second = 0;  // prompts that end, where more may decode
    double stepping_seconds = 0;
  };

  AtCount With(int k, double slowed) {
    AtCount sum;
    double weight = 1, all = 0, largest = 0, free = 0;
    for (int n = std::min(k, top()); n >= 0; --n) {
      const int j = k - n;
      const State& state = At(n, j);
      const double held = HeldPart(n), ends = EndsPerSecond(n, (1 - held) * slowed);
      all += weight;
      free += weight * (1 - held);
      sum.slowed += weight * (1 - held) * state.slowed;
      sum.completions += weight * ends;
      sum.for_room += weight * held * j;
      sum.for_rows += weight * (1 - held) * (j - state.busy);
      sum.held_up += weight * (1 - (1 - held) * state.begins);
      sum.met += weight * (j > 0 ? 1 : held);
      (j > 0 ? sum.stepping : sum.alone) += weight * state.stepping_seconds;
      largest = std::max(largest, weight);
      if (n == 0) break;
      weight *= ends / ((1 - HeldPart(n - 1)) * At(n - 1, j + 1).per_second);
      if (weight < kNegligible * largest) break;
      if (weight < kLarge) continue;
      for (double* x : {&weight, &all, &largest, &free}) *x /= kLarge;
      Divide(kLarge, &sum);
    }
    Divide(all, &sum);
    sum.slowed = free > 0 ? sum.slowed * all / free : 0;
    return sum;
  }

  int top() const { return most_ + (last_place_ > 0 ? 1 : 0); }

  // The part of the time with n in which none may join them.
  double HeldPart(int n) const {
    if (n < most_) return 0;
    return n > most_ || last_place_ <= 0 ? 1 : 1 - last_place_;
  }

  const StepTimes& Times(int n) const { return times_[static_cast<size_t>(n)]; }

  // Micro-batches that j prompts keep busy.
  double Busy(int n, int j) const {
    return std::clamp(j / Times(n).prompts_begun, std::min(1.0 * j, 1.0), 1.0 * servers_);
  }

  // Part of what chunks in all micro-batches add to a period.
  double SlowedBy(int n, int j) const {
    if (j == 0) return 0;
    return std::min(1.0, std::max(asked_.stages, Busy(n, j)) / servers_);
  }

  double PeriodSeconds(int n, double slowed) const {
    return Times(n).plain_seconds + slowed * Times(n).more_seconds;
  }

  double SteppingSeconds(int n, int j) const {
    const StepTimes& times = Times(n);
    if (j == 0) return n < servers_ ? 0 : times.plain_seconds / 2;
    const double m = times.lanes, c = std::min(Busy(n, j), m);
    const double full = std::min(1.0, j * asked_.prompt_tokens / (c * times.prompt_rows));
    const double of_period = std::min(1.0, m / asked_.all_stages);
    const double brief = of_period * times.plain_seconds;               // tau_0
    const double slow = brief + of_period * full * times.more_seconds;  // tau_B
    const double round = m * PeriodSeconds(n, full * SlowedBy(n, j));   // T
    const double slack = std::max(0.0, round - c * slow - (m - c) * brief);
    const double gaps_squared =
        (m - c) * brief * brief + c * slow * slow + 2 * slow * slack + 2 * slack * slack / (c + 1);
    const double until = j + n < servers_ ? 0 : gaps_squared / (2 * round);  // one is idle
    const double shared = times.long_prompts / times.prompt_steps;
    const double behind = 1 - (1 + times.long_prompts) / times.prompt_steps;
    const double begins = Busy(n, j + 1) - Busy(n, j);
    return begins * (until + shared * round + behind * (slow - brief)) + (1 - begins) * round / 2;
  }

  State StateOf(int n, int j) const {
    const StepTimes& times = Times(n);
    State state;
    state.known = true;
    state.busy = Busy(n, j);
    state.begins = Busy(n, j + 1) - state.busy;
    const double slowed = SlowedBy(n, j), period = PeriodSeconds(n, slowed);
    if (times.more_seconds > 0) state.slowed = slowed * PeriodSeconds(n, 1) / period;
    state.per_second =
        state.busy * times.prompt_rows / (asked_.prompt_tokens * times.lanes * period);
    state.stepping_seconds = SteppingSeconds(n, j);
    return state;
  }

  // More prompts than keep all busy change nothing but the queue.
  const State& At(int n, int j) {
    j = std::min(j, all_busy_);
    State& state = states_[static_cast<size_t>(n * (all_busy_ + 1) + j)];
    if (!state.known) state = StateOf(n, j);
    return state;
  }

  // Ends of those who decode, where chunks take such a part of what they take at most.
  double EndsPerSecond(int n, double slowed) const {
    const auto at = static_cast<size_t>(n);
    return ends_[at] * (1 - slowed * lost_[at]);
  }

  const PromptsAsked& asked_;
  const int servers_;
  const int most_;
  const double last_place_;
  std::vector<StepTimes> times_;  // by n
  int all_busy_ = 0;              // prompts that keep all micro-batches busy
  std::vector<State> states_;     // by n and j
  std::vector<double> ends_;      // by n: R without chunks
  std::vector<double> lost_;      // by n: part of it that chunks in all steps take
};

}  // namespace

PromptWaits PromptWaitsAt(const PromptsAsked& asked,
                          const std::function<StepTimes(double)>& times_with) {
  Chain chain(asked, times_with);
  Chain::Slowed from_above;
  from_above.at[0] = 1;
  const AtCount endless = chain.At(chain.full(), &from_above);
  PromptWaits waits;
  waits.most_per_second = endless.completions;
  if (asked.rate <= 0) return waits;
  if (asked.rate >= endless.completions) {
    waits.wait = {1, std::numeric_limits<double>::infinity()};
    return waits;
  }
  double weight = 1, all = 1, waiting = 0;
  AtCount sum;
  const auto add = [&](const AtCount& at, double more) {
    all += more;
    waiting += more * (asked.row_peakedness * at.for_rows + asked.room_peakedness * at.for_room);
    sum.held_up += more * at.held_up;
    sum.met += more * at.met;
    sum.alone += more * at.alone;
    sum.stepping += more * at.stepping;
  };
  Chain::Slowed slowed;
  for (int k = 1; k < chain.full(); ++k) {
    const AtCount at = chain.At(k, &slowed);
    weight *= asked.rate / at.completions;
    add(at, weight);
    // With more requests no fewer are completed, so the rest is no more than a geometric series.
    const double rest = weight * asked.rate / std::max(0.0, at.completions - asked.rate);
    if (rest < kNegligible * all) {
      weight = 0;
      break;
    }
    if (weight < kLarge) continue;
    for (double* x : {&weight, &all, &waiting}) *x /= kLarge;
    Divide(kLarge, &sum);
  }
  // The rest is geometric.
  const double ratio = asked.rate / endless.completions;
  const double beyond = weight * ratio / (1 - ratio), more_each = ratio / (1 - ratio);
  add(endless, beyond);
  const double room_part = endless.for_room / (endless.for_room + endless.for_rows);
  waiting += beyond * more_each *
             (room_part * asked.room_peakedness + (1 - room_part) * asked.row_peakedness);
  waits.wait.probability = sum.held_up / all;
  if (sum.held_up > 0) waits.wait.mean_seconds = waiting / (asked.rate * sum.held_up);
  waits.alone_seconds = sum.alone / all;
  waits.stepping.probability = sum.met / all;
  if (sum.met > 0) waits.stepping.mean_seconds = sum.stepping / sum.met;
  return waits;
}

}  // namespace tessera::scheduler
