#include "scheduler/cost/load_states.h"

#include <algorithm>
#include <cmath>

namespace tessera::scheduler {
namespace {

constexpr int kStates = 8;
constexpr double kGrid = 128;

}  // namespace

LoadDistribution LoadAt(const LoadAsked& asked, const std::function<double(double)>& completions) {
  LoadDistribution load;
  const double at_most = completions(asked.most);
  load.saturated = at_most <= asked.rate;
  if (load.saturated || asked.rate <= 0) {
    load.sequences.assign(1, load.saturated ? asked.most : 0);
    load.mean_sequences = load.sequences.front();
    return load;
  }
  const double step = std::max(1.0, asked.most / kGrid);
  std::vector<double> n, weight;
  double log_weight = 0, largest = 0;
  for (double at = 0; at < asked.most; at += step) {
    if (at > 0) log_weight += step * std::log(asked.rate / completions(at)) / asked.peakedness;
    n.push_back(at);
    weight.push_back(log_weight);
    largest = std::max(largest, log_weight);
  }
  double sum = 0;
  for (double& w : weight) sum += w = step * std::exp(w - largest);
  // Behind the last of them a queue, geometric in its length.
  const double queue = asked.queue_peakedness / std::log(at_most / asked.rate);
  const double waiting = weight.back() / step * asked.rate / at_most * queue;
  sum += waiting;
  load.wait = {waiting / sum, queue / asked.rate};
  n.push_back(asked.most);
  weight.push_back(waiting);
  double passed = 0;
  size_t at = 0;
  for (int k = 0; k < kStates; ++k) {
    const double quantile = sum * (k + 0.5) / kStates;
    while (at + 1 < n.size() && passed + weight[at] < quantile) passed += weight[at++];
    load.sequences.push_back(n[at]);
  }
  for (size_t i = 0; i < n.size(); ++i) load.mean_sequences += n[i] * weight[i] / sum;
  return load;
}

}  // namespace tessera::scheduler
