// What a split pair does: attainment.h, with the prompt computed here and the rest there.
#include <algorithm>
#include <cmath>
#include <numeric>

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

double DecodeLoad::mean_tpot_seconds() const {
  if (tpot_seconds.empty()) return 0;
  return std::accumulate(tpot_seconds.begin(), tpot_seconds.end(), 0.0) /
         static_cast<double>(tpot_seconds.size());
}

// Where only prompts are computed, micro-batches start when they like, and none overtakes another:
// behind a step that takes x seconds in the stages after the first one, and entered t seconds ago,
// one that takes y leaves x - y - t later than alone. Steps come at `rate`, so the largest of these
// is beyond d with 1 - exp(-rate E[(x - y - d)+]), and its mean is the integral of that over d > 0.
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
  for (size_t c = 0; c < classes_.size(); ++c) {
    for (size_t i = 0; i < classes_[c].samples.size(); ++i)
      longest = std::max(longest, after_first(c, i));
  }
  if (longest <= 0) return speed;
  const double apart = longest / kGrid;
  const auto below = [&](double x) { return std::min(kGrid - 1, static_cast<size_t>(x / apart)); };
  std::vector<double> weight(kGrid, 0), later(kGrid + 1, 0);
  for (size_t c = 0; c < classes_.size(); ++c) {
    for (size_t i = 0; i < classes_[c].samples.size(); ++i)
      weight[below(after_first(c, i))] += classes_[c].share * classes_[c].samples[i].weight;
  }
  // From the longest down: part of the steps that are longer, mean by which they are, its integral.
  double longer = 0, by = 0;
  for (size_t k = kGrid; k-- > 0;) {
    by += apart * (longer + weight[k] / 2);
    longer += weight[k];
    later[k] = later[k + 1] + apart * (1 - std::exp(-rate * by));
  }
  PrefillSpeed behind = speed;
  for (size_t c = 0; c < classes_.size(); ++c) {
    for (size_t i = 0; i < classes_[c].samples.size(); ++i) {
      const double x = after_first(c, i) / apart;
      const size_t k = below(after_first(c, i));
      const double t = std::min(1.0, x - static_cast<double>(k));
      behind.latency_seconds[c][i] += later[k] + t * (later[k + 1] - later[k]);
    }
  }
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
    for (size_t c = 0; c < classes_.size(); ++c) {
      for (size_t i = 0; i < classes_[c].samples.size(); ++i)
        sum += classes_[c].share * classes_[c].samples[i].weight * one.latency_seconds[c][i];
    }
    return sum;
  };
  const double latency = mean(behind);
  const double shares = AllBusy(mean(speed) / speed.service.mean, rate * latency);
  const double either = std::max(queue.probability, shares);
  if (either <= 0) return queue;
  return {either, (queue.mean() + shares * latency / 2) / either};
}

Attained AttainmentModel::At(const PrefillSpeed& speed, double rate, const DecodeLoad& decode,
                             const KvPath* path) const {
  const PrefillSpeed behind = BehindOthers(speed, rate);
  std::vector<Chance> chances(std::max<size_t>(1, decode.tpot_seconds.size()));
  for (size_t k = 0; k < chances.size(); ++k) {
    chances[k].weight = 1.0 / static_cast<double>(chances.size());
    chances[k].speed = &behind;
    chances[k].tpot_seconds = decode.tpot_seconds.empty() ? 0 : decode.tpot_seconds[k];
  }
  return Expect(chances, {1, WaitForStep(speed, behind, rate), decode.room},
                path == nullptr ? SentSeconds() : SentOf(speed, *path));
}

ReplicaCurve AttainmentModel::DecodeCurveOf(const ReplicaSpec& replica, int micro_batches,
                                            double kv_capacity_tokens,
                                            double most_sequences) const {
  ReplicaCurve curve;
  const double context = std::max(1.0, lengths_.mean_decode_context());
  curve.kv_tokens = std::max(0.0, kv_capacity_tokens - lengths_.prompt_tokens / 2);
  curve.most_at_once = most_sequences;
  curve.step_tokens = most_sequences;
  curve.stages = static_cast<double>(replica.stages.size());
  const double most = std::max(1.0, std::min(most_sequences, curve.kv_tokens / context));
  curve.points = PointsOf(replica, micro_batches, most, most_sequences);
  return curve;
}

DecodeLoad AttainmentModel::LoadOf(const ReplicaCurve& decode, double rate,
                                   double kept_tokens) const {
  if (lengths_.decode_steps <= 0) return {};  // nothing comes here
  const double context = std::max(1.0, lengths_.mean_decode_context());
  const double room = (decode.kv_tokens - kept_tokens) / context;
  const LoadAsked asked = AskedOf(rate, std::max(1.0, std::min(decode.most_at_once, room)));
  const auto completions = [&](double n) { return CompletionsAt(decode, n, 0); };
  const LoadDistribution load = LoadAt(asked, completions);
  DecodeLoad out;
  for (const double n : load.sequences)
    out.tpot_seconds.push_back(PaceAt(decode, n + 1, 0).tpot_seconds);
  out.room = load.wait;
  if (room < 1 || rate > kBusiest * completions(asked.most))
    out.room = {1, std::numeric_limits<double>::infinity()};
  return out;
}

AttainmentModel::SentSeconds AttainmentModel::SentOf(const PrefillSpeed& speed,
                                                     const KvPath& path) const {
  SentSeconds sent;
  for (size_t c = 0; c < classes_.size(); ++c) {
    std::vector<double>& seconds = sent.emplace_back();
    for (size_t i = 0; i < classes_[c].samples.size(); ++i) {
      const RequestLengths& sample = classes_[c].samples[i];
      const RawKv kv = {sample.prompt_tokens * KvBytesPerToken(model_),
                        model_.kv_bytes_per_element};
      seconds.push_back(sample.output_tokens <= 1
                            ? 0
                            : TransferKv(kv, path.link, model_.layers, speed.latency_seconds[c][i],
                                         path.codec, path.codec_rates)
                                  .unhidden_seconds);
    }
  }
  return sent;
}

double AttainmentModel::KeptBefore(const PrefillSpeed& speed, double rate,
                                   const KvPath& path) const {
  const SentSeconds sent = SentOf(speed, path);
  const PrefillSpeed behind = BehindOthers(speed, rate);
  const double wait = WaitForStep(speed, behind, rate).mean();
  double kept = 0;
  for (size_t c = 0; c < classes_.size(); ++c) {
    for (size_t i = 0; i < classes_[c].samples.size(); ++i) {
      const RequestLengths& sample = classes_[c].samples[i];
      if (sample.output_tokens <= 1) continue;  // it stays where it is computed
      kept += classes_[c].share * sample.weight * sample.prompt_tokens *
              (wait + behind.latency_seconds[c][i] + sent[c][i]);
    }
  }
  return kept;
}

}  // namespace tessera::scheduler
