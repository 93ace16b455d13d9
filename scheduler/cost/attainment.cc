#include "scheduler/cost/attainment.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace tessera::scheduler {
namespace {

constexpr size_t kKnots = 10;  // prompt lengths of a class that are computed
constexpr double kRateTolerance = 1e-6;
constexpr int kBisections = 60;
constexpr double kFewestStepTokens = 64;  // rows of a step that are tried
constexpr double kRounding = 1e-9;        // of limits that a bisection has just met
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double DecodeSteps(const RequestLengths& sample) { return std::max(0.0, sample.output_tokens - 1); }

// The largest x in (0, high] with good(x), which holds below some x; 0 if none.
template <typename Good>
double Largest(double high, const Good& good) {
  if (good(high)) return high;
  double low = 0;
  for (int i = 0; i < kBisections && high - low > kRateTolerance * high; ++i) {
    const double middle = (low + high) / 2;
    (good(middle) ? low : high) = middle;
  }
  return low;
}

std::vector<RequestLengths> Together(const std::vector<RequestClass>& classes) {
  std::vector<RequestLengths> all;
  for (const RequestClass& one : classes) {
    for (RequestLengths sample : one.samples) {
      sample.weight *= one.share;
      all.push_back(sample);
    }
  }
  return all;
}

}  // namespace

bool LatencyLimits::any() const {
  return std::isfinite(std::min({ttft_seconds, tpot_seconds, end_to_end_seconds}));
}

bool AnyLimits(const std::vector<RequestClass>& classes) {
  return std::any_of(classes.begin(), classes.end(),
                     [](const RequestClass& one) { return one.limits.any(); });
}

bool EnoughAttained(const std::vector<RequestClass>& classes, const std::vector<double>& by_class) {
  std::map<int, double> spare;  // by group
  for (size_t c = 0; c < classes.size(); ++c) {
    spare[classes[c].judged_with] +=
        classes[c].share * (by_class[c] - classes[c].required_attainment);
  }
  return std::all_of(spare.begin(), spare.end(),
                     [](const auto& group) { return group.second >= -kRounding; });
}

double LeastTpotLimit(const std::vector<RequestClass>& classes) {
  double least = kInfinity;
  for (const RequestClass& one : classes) least = std::min(least, one.limits.tpot_seconds);
  return least;
}

double LargestUsefulTpot(const std::vector<RequestClass>& classes) {
  struct Group {
    double weight = 0, required = 0;
    std::vector<std::pair<double, double>> limits;  // TPOT, weight
  };
  std::map<int, Group> groups;
  for (const RequestClass& one : classes) {
    Group& group = groups[one.judged_with];
    group.weight += one.share;
    group.required += one.share * one.required_attainment;
    for (const RequestLengths& sample : one.samples) {
      const double steps = DecodeSteps(sample);
      const double limit =
          steps > 0 ? std::min(one.limits.tpot_seconds, one.limits.end_to_end_seconds / steps)
                    : kInfinity;
      group.limits.emplace_back(limit, one.share * sample.weight);
    }
  }
  double tpot = kInfinity;
  for (auto& [number, group] : groups) {
    std::sort(group.limits.begin(), group.limits.end(), std::greater<>());
    double within = 0;
    for (const auto& [limit, weight] : group.limits) {
      within += weight;
      if (within < group.required * (1 - kRounding)) continue;
      tpot = std::min(tpot, limit);
      break;
    }
  }
  return tpot;
}

AttainmentModel::AttainmentModel(const ModelShape& model, const std::vector<RequestClass>& classes,
                                 const ReplicaOptions& options, double arrival_variation)
    : model_(model),
      classes_(classes),
      options_(options),
      arrival_variation_(arrival_variation),
      lengths_(MomentsOf(Together(classes))) {
  for (const RequestClass& one : classes) {
    Knots& knots = knots_.emplace_back();
    for (const RequestLengths& sample : one.samples) {
      knots.prompts.push_back(sample.prompt_tokens);
      knots.prefix_hit_rate = sample.prefix_hit_rate;
    }
    std::sort(knots.prompts.begin(), knots.prompts.end());
    knots.prompts.erase(std::unique(knots.prompts.begin(), knots.prompts.end()),
                        knots.prompts.end());
    if (knots.prompts.size() > kKnots) {
      const double low = std::max(1.0, knots.prompts.front()), high = knots.prompts.back();
      knots.prompts.clear();
      for (size_t k = 0; k < kKnots; ++k) {
        const double part = static_cast<double>(k) / (kKnots - 1);
        knots.prompts.push_back(low * std::pow(high / low, part));
      }
    }
    for (const RequestLengths& sample : one.samples) {
      const auto above =
          std::upper_bound(knots.prompts.begin() + 1, knots.prompts.end(), sample.prompt_tokens);
      const auto below = static_cast<size_t>(above - knots.prompts.begin()) - 1;
      knots.below.push_back(below);
      const double from = knots.prompts[below];
      knots.towards.push_back(
          below + 1 < knots.prompts.size()
              ? std::clamp((sample.prompt_tokens - from) / (knots.prompts[below + 1] - from), 0.0,
                           1.0)
              : 0.0);
    }
  }
}

PrefillSpeed AttainmentModel::PrefillBeside(const ReplicaSpec& replica, int micro_batches,
                                            double decode_rows, double step_tokens) const {
  PrefillSpeed speed;
  ReplicaOptions options = options_;
  if (step_tokens > 0) options.memory.max_step_tokens = static_cast<int64_t>(step_tokens);
  for (size_t c = 0; c < classes_.size(); ++c) {
    const Knots& knots = knots_[c];
    std::vector<PrefillCost> at;
    for (const double prompt : knots.prompts) {
      at.push_back(PrefillCostOf(model_, replica, {prompt, 1, 1, knots.prefix_hit_rate}, options,
                                 micro_batches, decode_rows, lengths_.mean_decode_context()));
    }
    std::vector<double>& latency = speed.latency_seconds.emplace_back();
    for (size_t i = 0; i < classes_[c].samples.size(); ++i) {
      const PrefillCost& low = at[knots.below[i]];
      const PrefillCost& high = at[std::min(knots.below[i] + 1, at.size() - 1)];
      const double t = knots.towards[i];
      const double service = low.service_seconds + t * (high.service_seconds - low.service_seconds);
      const double weight = classes_[c].share * classes_[c].samples[i].weight;
      speed.service.mean += weight * service;
      speed.service.second += weight * service * service;
      latency.push_back(low.latency_seconds + t * (high.latency_seconds - low.latency_seconds));
    }
  }
  return speed;
}

ReplicaPace AttainmentModel::PaceBeside(const ReplicaSpec& replica, int micro_batches,
                                        double decode_rows, double step_tokens) const {
  ReplicaPace pace;
  const double context = lengths_.mean_decode_context();
  const double room = std::max(1.0, step_tokens - decode_rows);
  const double q = std::max(1.0, lengths_.uncached_prompt_tokens);
  pace.chunk_part = decode_rows * q / (lengths_.decode_steps * room);
  StepWork plain = DecodeWork(std::max(decode_rows, 1.0), context);
  StepWork chunk = plain;
  chunk.prefill_tokens = room;
  chunk.prefill_attention_pairs = room * lengths_.prefill_pairs / q;
  chunk.prefill_cached_tokens = std::max(room / q, 1.0) * lengths_.prefill_pairs / q;
  chunk.sampled_rows += room / q;
  const double shortest = PeriodOf(model_, replica, plain, micro_batches).seconds;
  const double longest = PeriodOf(model_, replica, chunk, micro_batches).seconds;
  const auto stages = static_cast<double>(replica.stages.size());
  const double slow = 1 - std::pow(std::max(0.0, 1 - pace.chunk_part), stages);
  pace.period_seconds = shortest + slow * (longest - shortest);
  pace.tpot_seconds = micro_batches * pace.period_seconds;
  pace.requests_per_second = decode_rows / (pace.period_seconds * lengths_.decode_steps);
  return pace;
}

double AttainmentModel::RowsAtRate(const ReplicaSpec& replica, int micro_batches, double rate,
                                   double step_tokens) const {
  const double most =
      std::min(options_.max_sequences / micro_batches, std::max(1.0, step_tokens - 1));
  return Largest(most, [&](double rows) {
    const ReplicaPace pace = PaceBeside(replica, micro_batches, rows, step_tokens);
    return pace.chunk_part < 1 && pace.requests_per_second <= rate;
  });
}

Attained AttainmentModel::At(const PrefillSpeed& speed, double rate, double tpot_seconds,
                             const KvPath* path) const {
  Attained attained;
  const double mean_wait = MeanWaitSeconds(rate, speed.service, arrival_variation_);
  for (size_t c = 0; c < classes_.size(); ++c) {
    const LatencyLimits& limits = classes_[c].limits;
    double within = 0, ttft = 0, end_to_end = 0;
    for (size_t i = 0; i < classes_[c].samples.size(); ++i) {
      const RequestLengths& sample = classes_[c].samples[i];
      const double latency = speed.latency_seconds[c][i], steps = DecodeSteps(sample);
      const double sent =
          path == nullptr || steps <= 0
              ? 0
              : TransferKv(
                    {sample.prompt_tokens * KvBytesPerToken(model_), model_.kv_bytes_per_element},
                    path->link, model_.layers, latency, path->codec, path->codec_rates)
                    .unhidden_seconds;
      const double decode = steps * tpot_seconds + sent;
      ttft += sample.weight * (mean_wait + latency);
      end_to_end += sample.weight * (mean_wait + latency + decode);
      if (decode > steps * limits.tpot_seconds * (1 + kRounding)) continue;
      const double may_wait =
          std::min(limits.ttft_seconds, limits.end_to_end_seconds - decode) * (1 + kRounding) -
          latency;
      within += sample.weight * (may_wait >= kInfinity
                                     ? 1
                                     : 1 - WaitExceedsProbability(may_wait, rate, speed.service,
                                                                  arrival_variation_));
    }
    attained.by_class.push_back(within);
    attained.ttft_seconds.push_back(ttft);
    attained.end_to_end_seconds.push_back(end_to_end);
    attained.all += classes_[c].share * within;
  }
  return attained;
}

ReplicaRate AttainmentModel::WithinLimits(const ReplicaSpec& replica,
                                          const ReplicaRate& capacity) const {
  ReplicaRate rate = capacity;
  if (rate.requests_per_second <= 0) return rate;
  const int m = rate.micro_batches;
  if (lengths_.decode_steps <= 0) {  // the first token is the whole answer
    const PrefillSpeed speed = PrefillBeside(replica, m, 0, 0);
    rate.requests_per_second = PrefillRateWithinLimits(speed, rate.requests_per_second, 0, nullptr);
  } else {
    rate.requests_per_second = 0;
    const auto most = static_cast<double>(options_.memory.max_step_tokens);
    for (double tokens = most; tokens >= kFewestStepTokens; tokens /= 2) {
      const double rows = Largest(std::min(capacity.decode_rows, tokens - 1), [&](double b) {
        const ReplicaPace pace = PaceBeside(replica, m, b, std::floor(tokens));
        if (pace.chunk_part >= 1) return false;
        const PrefillSpeed speed = PrefillBeside(replica, m, b, std::floor(tokens));
        return EnoughAttained(classes_,
                              At(speed, pace.requests_per_second, pace.tpot_seconds).by_class);
      });
      const ReplicaPace pace = PaceBeside(replica, m, rows, std::floor(tokens));
      if (rows <= 0 || pace.requests_per_second <= rate.requests_per_second) continue;
      rate.decode_rows = rows;
      rate.prefill_tokens = rows * lengths_.uncached_prompt_tokens / lengths_.decode_steps;
      rate.period_seconds = pace.period_seconds;
      rate.tpot_seconds = pace.tpot_seconds;
      rate.requests_per_second = std::min(capacity.requests_per_second, pace.requests_per_second);
      rate.step_tokens = static_cast<int64_t>(tokens);
    }
  }
  rate.output_tokens_per_second = rate.requests_per_second * lengths_.output_tokens;
  if (rate.requests_per_second < capacity.requests_per_second) rate.limit = Limit::kObjectives;
  return rate;
}

double AttainmentModel::PrefillRateWithinLimits(const PrefillSpeed& speed, double capacity,
                                                double tpot_seconds, const KvPath* path) const {
  if (capacity <= 0) return 0;
  return Largest(capacity, [&](double rate) {
    return EnoughAttained(classes_, At(speed, rate, tpot_seconds, path).by_class);
  });
}

}  // namespace tessera::scheduler
