// What prompts wait for where nothing decodes: each other.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "scheduler/cost/attainment.h"

namespace tessera::scheduler {
namespace {

constexpr size_t kGrid = 48;

// Part of the arrivals that find all of `servers` busy, `offered` of them on average (Erlang C).
double AllBusy(double servers, double offered) {
  const int most = std::max(1, static_cast<int>(std::lround(servers)));
  if (offered >= most) return 1;
  double term = 1, fewer = 0;
  for (int i = 0; i < most; ++i) {
    fewer += term;
    term *= offered / (i + 1);
  }
  const double all = term * most / (most - offered);
  return all / (fewer + all);
}

}  // namespace

Wait AttainmentModel::PromptQueue(double rate, const ServiceMoments& service) const {
  if (rate * service.mean > kBusiest) return {1, std::numeric_limits<double>::infinity()};
  return QueueWait(rate, service, arrival_variation_);
}

// Micro-batches start when they like here, and none overtakes another: behind a step that takes x
// seconds in the stages after the first one, and entered t seconds ago, one that takes y leaves
// x - y - t later than alone. Steps come at `rate`, so the largest of these is beyond d with
// 1 - exp(-rate E[(x - y - d)+]), and its mean is the integral of that over d > 0.
PrefillSpeed AttainmentModel::BehindOthers(const PrefillSpeed& speed, double rate) const {
  const double per_token =
      speed.service.mean / std::max(1.0, lengths_.uncached_prompt_tokens);  // of the slowest stage
  const auto most_rows = static_cast<double>(options_.memory.max_step_tokens);
  const auto after_first = [&](size_t c, size_t i) {
    const RequestLengths& sample = classes_[c].samples[i];
    const double rows = sample.prompt_tokens * (1 - sample.prefix_hit_rate);
    const double step = std::min(1.0, most_rows / std::max(1.0, rows));  // of its steps
    return std::max(0.0, step * (speed.latency_seconds[c][i] - rows * per_token));
  };
  double longest = 0;
  ForEachSample(
      [&](size_t c, size_t i, double) { longest = std::max(longest, after_first(c, i)); });
  if (longest <= 0) return speed;
  const double apart = longest / kGrid;
  const auto below = [&](double x) { return std::min(kGrid - 1, static_cast<size_t>(x / apart)); };
  std::vector<double> weight(kGrid, 0), later(kGrid + 1, 0);
  ForEachSample([&](size_t c, size_t i, double part) { weight[below(after_first(c, i))] += part; });
  // From the longest down: part of the steps that are longer, mean by which they are, its integral.
  double longer = 0, by = 0;
  for (size_t k = kGrid; k-- > 0;) {
    by += apart * (longer + weight[k] / 2);
    longer += weight[k];
    later[k] = later[k + 1] + apart * (1 - std::exp(-rate * by));
  }
  PrefillSpeed behind = speed;
  ForEachSample([&](size_t c, size_t i, double) {
    const double x = after_first(c, i) / apart;
    const size_t k = below(after_first(c, i));
    const double t = std::min(1.0, x - static_cast<double>(k));
    behind.latency_seconds[c][i] += later[k] + t * (later[k + 1] - later[k]);
  });
  return behind;
}

// As many micro-batches as keep the slowest stage busy, latency / service, are under way at once. A
// prompt that finds them so shares its steps, for half a round on average (prompt_waits.h).
Wait AttainmentModel::WaitForStep(const PrefillSpeed& speed, const PrefillSpeed& behind,
                                  double rate) const {
  const Wait queue = PromptQueue(rate, speed.service);
  if (!std::isfinite(queue.mean_seconds) || speed.service.mean <= 0) return queue;
  const auto mean = [&](const PrefillSpeed& one) {
    double sum = 0;
    ForEachSample(
        [&](size_t c, size_t i, double part) { sum += part * one.latency_seconds[c][i]; });
    return sum;
  };
  const double latency = mean(behind);
  const double shares = AllBusy(mean(speed) / speed.service.mean, rate * latency);
  const double either = std::max(queue.probability, shares);
  if (either <= 0) return queue;
  return {either, (queue.mean() + shares * latency / 2) / either};
}

}  // namespace tessera::scheduler
