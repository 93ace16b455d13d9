#include "scheduler/cost/attainment.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>

#include "scheduler/cost/step_budget.h"

namespace tessera::scheduler {
namespace {

constexpr size_t kKnots = 10;  // prompt lengths of a class that are computed
constexpr double kRateTolerance = 1e-6;
constexpr double kBetter = 1 + 1e-3;
constexpr double kFewestStepTokens = 64;   // rows of a step that are tried
constexpr double kLikelyStepTokens = 256;  // of these, tried first
// A normal variable in five equally likely parts.
constexpr double kNormal[] = {-1.28155, -0.52440, 0, 0.52440, 1.28155};
constexpr double kCertain[] = {0};
constexpr double kRounding = 1e-9;  // of limits that a bisection has just met
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double DecodeSteps(const RequestLengths& sample) { return std::max(0.0, sample.output_tokens - 1); }

// The largest x in [low, high] at which spare(x), which falls and is `below` at low, is not below
// 0; 0 if none. False position kept so close to the middle that it takes at most one step more than
// bisection: ITP (Oliveira and Takahashi, ACM TOMS 47, 2020), k1 = 0.2 / (high - low), k2 = 2 and
// n0 = 1.
template <typename Spare>
double Largest(double low, double below, double high, const Spare& spare) {
  if (below < 0) return 0;
  double above = spare(high);
  if (above >= 0) return high;
  const double most = high - low, tolerance = kRateTolerance * high;
  double reach = most;  // halves with every step
  while (high - low > tolerance) {
    const double middle = (low + high) / 2;
    const double falsi = (high * below - low * above) / (below - above);
    const double towards = falsi < middle ? 1 : -1;
    const double nudge = 0.2 / most * (high - low) * (high - low);
    const double off =
        std::max(0.0, std::min(std::abs(middle - falsi) - nudge, reach - (high - low) / 2));
    const double at = middle - towards * off;
    const double value = spare(at);
    (value >= 0 ? low : high) = at;
    (value >= 0 ? below : above) = value;
    reach /= 2;
  }
  return low;
}

// Rows of a step: those that are `enough` where the replica serves all it can, and the most, halved
// and halved again. Those first that are likely to serve most, so that the others need only be seen
// to serve less.
std::vector<double> StepTokensToTry(int64_t enough, int64_t most) {
  std::vector<double> tokens = {static_cast<double>(enough)};
  for (auto rows = static_cast<double>(most); rows >= kFewestStepTokens; rows /= 2)
    tokens.push_back(rows);
  std::stable_sort(tokens.begin(), tokens.end(), [](double a, double b) {
    return std::abs(std::log2(a / kLikelyStepTokens)) < std::abs(std::log2(b / kLikelyStepTokens));
  });
  return tokens;
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

bool LimitsWaits(const std::vector<RequestClass>& classes) {
  return std::any_of(classes.begin(), classes.end(), [](const RequestClass& one) {
    return std::isfinite(std::min(one.limits.ttft_seconds, one.limits.end_to_end_seconds));
  });
}

double SpareAttained(const std::vector<RequestClass>& classes,
                     const std::vector<double>& by_class) {
  std::map<int, double> spare;  // by group
  for (size_t c = 0; c < classes.size(); ++c) {
    spare[classes[c].judged_with] +=
        classes[c].share * (by_class[c] - classes[c].required_attainment);
  }
  double least = kInfinity;
  for (const auto& [group, more] : spare) least = std::min(least, more + kRounding);
  return least;
}

bool EnoughAttained(const std::vector<RequestClass>& classes, const std::vector<double>& by_class) {
  return SpareAttained(classes, by_class) >= 0;
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
  double steps_squared = 0, prompts = 0, prompts_squared = 0;
  for (const RequestLengths& sample : Together(classes)) {
    const double q = sample.prompt_tokens * (1 - sample.prefix_hit_rate);
    steps_squared += sample.weight * DecodeSteps(sample) * DecodeSteps(sample);
    prompts += sample.weight * q;
    prompts_squared += sample.weight * q * q;
  }
  const double steps = lengths_.decode_steps;
  if (steps > 0) step_variation_ = std::sqrt(std::max(0.0, steps_squared / (steps * steps) - 1));
  if (prompts > 0) {
    biased_prompt_tokens_ = prompts_squared / prompts;
    prompt_variation_ = std::sqrt(std::max(0.0, prompts_squared / (prompts * prompts) - 1));
  }
  std::vector<std::pair<double, double>> rows;
  for (const RequestLengths& sample : Together(classes))
    rows.emplace_back(sample.prompt_tokens * (1 - sample.prefix_hit_rate), sample.weight);
  std::sort(rows.begin(), rows.end());
  weight_from_.assign(rows.size() + 1, 0);
  for (size_t i = rows.size(); i-- > 0;) weight_from_[i] = weight_from_[i + 1] + rows[i].second;
  for (const auto& [of_prompt, weight] : rows) prompt_rows_.push_back(of_prompt);
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
  if (model_.keeps_states())
    options = WithSeats(options_, KvCapacityOf(model_, replica.stages, options_.memory).seats);
  if (step_tokens > 0) options.memory.max_step_tokens = static_cast<int64_t>(step_tokens);
  for (size_t c = 0; c < classes_.size(); ++c) {
    const Knots& knots = knots_[c];
    std::vector<PrefillCost> at;
    std::vector<double> chunks;
    for (const double prompt : knots.prompts) {
      at.push_back(PrefillCostOf(model_, replica, {prompt, 1, 1, knots.prefix_hit_rate}, options,
                                 micro_batches, decode_rows, lengths_.mean_decode_context(),
                                 knots.prefix_hit_rate > 0 ? nullptr : &chunks));
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

double AttainmentModel::LongerThan(double rows) const {
  const auto first = std::upper_bound(prompt_rows_.begin(), prompt_rows_.end(), rows);
  return weight_from_[static_cast<size_t>(first - prompt_rows_.begin())];
}

bool AttainmentModel::MayDecodeInTime(const ReplicaCurve& curve, double rate) const {
  PrefillSpeed at_once;
  for (const RequestClass& one : classes_)
    at_once.latency_seconds.emplace_back(one.samples.size(), 0.0);
  Company company = DecodingAt(curve, rate);
  for (Chance& chance : company.chances) chance.speed = &at_once;
  return EnoughAttained(classes_, Expect(company.chances, {}, {}).by_class);
}

double AttainmentModel::MostDecoding(const ReplicaCurve& curve, double rate) const {
  double seconds = 0, token_seconds = 0;  // of prompts being computed, per request
  ForEachSample([&](size_t c, size_t i, double part) {
    const double latency = part * curve.prefill.back().latency_seconds[c][i];
    seconds += latency;
    token_seconds += latency * classes_[c].samples[i].prompt_tokens;
  });
  const double context = std::max(1.0, lengths_.mean_decode_context());
  return std::max(1.0, std::min(curve.most_at_once - rate * seconds,
                                (curve.kv_tokens - rate * token_seconds) / context));
}

PrefillSpeed AttainmentModel::SpeedAt(const ReplicaCurve& curve, double sequences) const {
  const std::vector<double>& at = curve.prefill_beside;
  const auto above =
      static_cast<size_t>(std::upper_bound(at.begin() + 1, at.end() - 1, sequences) - at.begin());
  const double t = std::clamp((sequences - at[above - 1]) / (at[above] - at[above - 1]), 0.0, 1.0);
  PrefillSpeed speed = curve.prefill[above - 1];
  const PrefillSpeed& high = curve.prefill[above];
  speed.service.mean += t * (high.service.mean - speed.service.mean);
  speed.service.second += t * (high.service.second - speed.service.second);
  for (size_t c = 0; c < speed.latency_seconds.size(); ++c) {
    for (size_t i = 0; i < speed.latency_seconds[c].size(); ++i) {
      double& latency = speed.latency_seconds[c][i];
      latency += t * (high.latency_seconds[c][i] - latency);
    }
  }
  return speed;
}

LoadAsked AttainmentModel::AskedOf(double rate, double most) const {
  const double squared = arrival_variation_ * arrival_variation_;
  LoadAsked asked;
  asked.rate = rate;
  asked.most = most;
  asked.peakedness = (1 + squared) / 2;
  asked.queue_peakedness = (squared + step_variation_ * step_variation_) / 2;
  return asked;
}

PromptWaits AttainmentModel::WaitsOf(const ReplicaCurve& curve, double rate, double most) const {
  const double squared = arrival_variation_ * arrival_variation_;
  PromptsAsked asked;
  asked.rate = rate;
  asked.most = most;
  asked.micro_batches = curve.micro_batches;
  asked.stages = curve.stages;
  asked.all_stages = curve.all_stages;
  asked.prompt_tokens = std::max(1.0, lengths_.uncached_prompt_tokens);
  asked.decode_steps = lengths_.decode_steps;
  asked.row_peakedness = (squared + prompt_variation_ * prompt_variation_) / 2;
  asked.room_peakedness = (squared + step_variation_ * step_variation_) / 2;
  // Prompts that a step begins: the renewal theorem's for its rows; of lengths that vary more than
  // exponential ones, no more than of these.
  const double last = std::min(1.0, (1 + prompt_variation_ * prompt_variation_) / 2);
  PromptWaits waits = PromptWaitsAt(asked, [&](double n) {
    StepTimes times = TimesWith(curve, n);
    times.prompts_begun = std::max(1.0, times.prompt_rows / asked.prompt_tokens + last);
    return times;
  });
  if (rate > kBusiest * waits.most_per_second) waits.wait = {1, kInfinity};
  return waits;
}

AttainmentModel::Company AttainmentModel::DecodingAt(const ReplicaCurve& curve, double rate) const {
  Company company;
  company.most = MostDecoding(curve, rate);
  const LoadDistribution load =
      LoadAt(AskedOf(rate, company.most), [&](double n) { return CompletionsAt(curve, n, rate); });
  company.mean_sequences = load.mean_sequences;
  for (const double n : load.sequences) {
    const ReplicaPace pace = PaceAt(curve, n + 1, rate);  // the request itself among them
    Chance& chance = company.chances.emplace_back();
    chance.weight = 1.0 / static_cast<double>(load.sequences.size());
    chance.tpot_seconds = pace.tpot_seconds;
    chance.spread_per_step_seconds = pace.spread_seconds;
  }
  company.sequences = load.sequences;
  return company;
}

AttainmentModel::Company AttainmentModel::CompanyAt(const ReplicaCurve& curve, double rate) const {
  Company company = DecodingAt(curve, rate);
  for (const double n : company.sequences) company.speeds.push_back(SpeedAt(curve, n));
  for (size_t k = 0; k < company.chances.size(); ++k) company.chances[k].speed = &company.speeds[k];
  return company;
}

Attained AttainmentModel::At(const ReplicaCurve& curve, double rate) const {
  return In(curve, rate, CompanyAt(curve, rate));
}

double AttainmentModel::Delays::Exceed(double seconds) const {
  return seconds < 0 ? 1 : probability * WaitExceedsProbability(seconds, first, second);
}

Attained AttainmentModel::Expect(const std::vector<Chance>& chances, const Delays& delays,
                                 const SentSeconds& sent) const {
  Attained sum;
  sum.by_class.assign(classes_.size(), 0);
  sum.ttft_seconds = sum.end_to_end_seconds = sum.by_class;
  for (const Chance& chance : chances) {
    for (size_t c = 0; c < classes_.size(); ++c) Expect(c, chance, delays, sent, &sum);
    sum.tpot_seconds += chance.weight * chance.tpot_seconds;
  }
  for (size_t c = 0; c < classes_.size(); ++c) sum.all += classes_[c].share * sum.by_class[c];
  return sum;
}

void AttainmentModel::Expect(size_t request_class, const Chance& chance, const Delays& delays,
                             const SentSeconds& all_sent, Attained* sum) const {
  const RequestClass& one = classes_[request_class];
  const double mean_wait = delays.mean();
  double within = 0, ttft = 0, end_to_end = 0;
  for (size_t i = 0; i < one.samples.size(); ++i) {
    const RequestLengths& sample = one.samples[i];
    const double latency =
        chance.speed->latency_seconds[request_class][i] + chance.more_latency_seconds;
    const double steps = DecodeSteps(sample);
    const double sent = all_sent.empty() ? 0 : all_sent[request_class][i];
    ttft += sample.weight * (mean_wait + latency);
    end_to_end += sample.weight * (mean_wait + latency + sent + steps * chance.tpot_seconds);
    if (!std::isfinite(mean_wait)) continue;
    const double spread = steps > 0 ? chance.spread_per_step_seconds / std::sqrt(steps) : 0;
    const std::span<const double> normal =
        spread > 0 ? std::span<const double>(kNormal) : std::span<const double>(kCertain);
    double waits = -1, in_time = 0;  // how long it may wait, and how likely it need not longer
    for (const double z : normal) {
      const double decode = steps * std::max(0.0, chance.tpot_seconds + z * spread) + sent;
      if (decode > steps * one.limits.tpot_seconds * (1 + kRounding)) continue;
      const double end = std::min(one.limits.ttft_seconds, one.limits.end_to_end_seconds - decode);
      const double may_wait = end * (1 + kRounding) - latency;
      if (may_wait != waits) {
        waits = may_wait;
        in_time = may_wait >= kInfinity ? 1 : 1 - delays.Exceed(may_wait);
      }
      within += sample.weight / static_cast<double>(normal.size()) * in_time;
    }
  }
  sum->by_class[request_class] += chance.weight * within;
  sum->ttft_seconds[request_class] += chance.weight * ttft;
  sum->end_to_end_seconds[request_class] += chance.weight * end_to_end;
}

ReplicaRate AttainmentModel::WithinLimits(const ReplicaSpec& replica, const ReplicaRate& capacity,
                                          double known) const {
  ReplicaRate rate = capacity;
  if (rate.requests_per_second <= known) rate.requests_per_second = 0;
  if (rate.requests_per_second <= 0) return rate;
  const int m = rate.micro_batches;
  Limit limit = Limit::kObjectives;
  if (lengths_.decode_steps <= 0) {  // the first token is the whole answer
    const PrefillSpeed speed = PrefillBeside(replica, m, 0, 0);
    rate.requests_per_second =
        LargestWithinLimits(rate.requests_per_second, [&](double r) { return At(speed, r, {}); });
  } else {
    rate.requests_per_second = 0;
    const int64_t enough = StepBudget(model_, replica, lengths_, options_, capacity);
    for (const double tokens : StepTokensToTry(enough, options_.memory.max_step_tokens)) {
      // What cannot beat the best so far is not looked at further.
      const double better = kBetter * std::max(known, rate.requests_per_second);
      if (better > capacity.requests_per_second) break;
      const std::optional<ReplicaCurve> found_curve =
          CurveFor(better, replica, m, capacity.kv_capacity_tokens,
                   WithSeats(options_, capacity.seats).max_sequences, std::floor(tokens));
      if (!found_curve) continue;
      const ReplicaCurve& curve = *found_curve;
      // Besides, what decodes on average leaves the headroom of the KV free.
      const auto spare_kv = [&](double r, const Attained& at) {
        const double held = r * at.tpot_seconds * lengths_.decode_context_sum;
        return 1 - held / ((1 - options_.kv_headroom) * capacity.kv_capacity_tokens);
      };
      const auto spare_of = [&](double r, const Attained& at) {
        return std::min(spare_kv(r, at), SpareAttained(classes_, at.by_class));
      };
      const auto spare = [&](double r) {
        Company company = CompanyAt(curve, r);
        // Where too few are in time even if nobody waits, how long they wait need not be known.
        const double unheld = spare_of(r, Expect(company.chances, {}, {}));
        return unheld < 0 ? unheld : spare_of(r, In(curve, r, std::move(company)));
      };
      const double found = Largest(better, spare(better), capacity.requests_per_second, spare);
      if (found <= 0) continue;
      const Attained at = At(curve, found);
      rate.decode_rows = at.sequences / m;
      rate.prefill_tokens =
          rate.decode_rows * lengths_.uncached_prompt_tokens / lengths_.decode_steps;
      rate.tpot_seconds = at.tpot_seconds;
      rate.period_seconds = at.tpot_seconds / m;
      rate.requests_per_second = found;
      rate.step_tokens = static_cast<int64_t>(tokens);
      const bool by_kv = spare_kv(found, at) < SpareAttained(classes_, at.by_class);
      limit = by_kv ? Limit::kKv : Limit::kObjectives;
    }
  }
  rate.output_tokens_per_second = rate.requests_per_second * lengths_.output_tokens;
  if (rate.requests_per_second < capacity.requests_per_second) rate.limit = limit;
  return rate;
}

double AttainmentModel::LargestWithinLimits(double capacity,
                                            const std::function<Attained(double)>& at) const {
  if (capacity <= 0) return 0;
  const auto spare = [&](double rate) { return SpareAttained(classes_, at(rate).by_class); };
  return Largest(0, spare(0), capacity, spare);
}

}  // namespace tessera::scheduler
