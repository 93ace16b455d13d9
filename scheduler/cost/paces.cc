// How steps with and without chunks of prompts follow each other: attainment.h, and in pipelines:
//
// Micro-batches go through the stages one behind the other, so that a step with a chunk of a prompt
// holds up the others in each stage in which it takes longer than theirs. Of m micro-batches, one
// of them with chunks, a round takes
//   m * T + X,   X = sum over stages of max(0, c_j - T), at most m * (T_B - T),
// T the period of steps without chunks, T_B that of steps with them, c_j what a stage takes for
// one: unlike stages hold up others by unlike times. With drafts a step without a chunk gives E
// tokens, one with a chunk gives one, so that for a token, of which P_0 = T / E is the period
// without chunks, the others are held up as by
//   S = (X + (E - 1) * P_0) / (T_B - P_0)
// stages that all take T_B: 1 of one stage, as many as there are of like ones without drafts.
//
// Prompts come together: while some wait, all micro-batches compute them, and while there is none,
// all only decode. With k of them busy, of which each steps once a round of m * P(k),
//   P(k) = P_0 + min(1, max(S, k) / m) * (P_B - P_0),
// and k prompts are there with a chance of p(k) ~ prod_{i<=k} rate * m * P(i) / i, an M/M/m queue.
// The mean time of a token is 1 / sum p(k) / P(k). Of one stage that is P_0 + r * (P_B - P_0), r
// the part of the steps that carry a chunk.
// Mean answers take as long for each token. Who meets limits is judged with P as attainment.h has
// it: as if chunks came evenly, which is longer, since requests differ in how many prompts they
// see.
#include <algorithm>
#include <cmath>
#include <utility>

#include "scheduler/cost/attainment.h"

namespace tessera::scheduler {
namespace {

constexpr int kPoints = 12;                     // of a curve
constexpr double kLoads[] = {0, 0.35, 0.7, 1};  // of the sequences, beside which prompts are timed
constexpr double kMaxDecoding = 0.95;           // of the rows of a step
constexpr double kUsualSequences = 0.5;         // of the most, beside which chunks slow others
constexpr int kRounds = 50;
constexpr double kTolerance = 1e-6;

// S, 1 at least: steps of `plain` without chunks, as many drafts with them as pay, and of `chunk`.
double SlowedStages(const ModelShape& model, const ReplicaSpec& replica, const StepWork& plain,
                    const StepWork& chunk, int micro_batches) {
  const auto stages = static_cast<double>(replica.stages.size());
  if (stages == 1) return 1;
  const double tokens = DraftedStepOf(model, replica, plain, micro_batches).tokens;
  const double token_seconds = PeriodOf(model, replica, plain, micro_batches).seconds;
  const double step_seconds = tokens * token_seconds;
  const double chunk_seconds = PeriodOf(model, replica, chunk, micro_batches).seconds;
  if (chunk_seconds <= token_seconds) return stages;
  const std::vector<double> busy = BusyShares(model, replica, chunk, micro_batches);
  const double busiest = *std::max_element(busy.begin(), busy.end());
  double more = 0;
  for (const double share : busy)
    more += std::max(0.0, share / busiest * chunk_seconds - step_seconds);
  more = std::min(more, micro_batches * std::max(0.0, chunk_seconds - step_seconds));
  const double slowed = (more + (tokens - 1) * token_seconds) / (chunk_seconds - token_seconds);
  return std::clamp(slowed, 1.0, stages);
}

// The mean period where `chunks_per_second` steps are asked to carry a chunk: P_B where these are
// more than all.
double PeriodBesidePrompts(const StepTimes& times, int micro_batches, double slowed_stages,
                           double chunks_per_second) {
  double weight = 1, sum = 1, tokens_per_second = 1 / times.plain_seconds, period = 0;
  for (int busy = 1; busy <= micro_batches; ++busy) {
    const double slowed = std::min(1.0, std::max<double>(slowed_stages, busy) / micro_batches);
    period = times.plain_seconds + slowed * times.more_seconds;
    const double load = chunks_per_second * times.lanes * period / busy;
    weight *= load;
    if (busy == micro_batches) {  // more prompts than these wait
      if (load >= 1) return period;
      weight /= 1 - load;
    }
    sum += weight;
    tokens_per_second += weight / period;
  }
  return sum / tokens_per_second;
}

// `plain` beside `rows` rows of prompts with these lengths, which fill the step: without drafts.
StepWork WithChunk(const LengthMoments& lengths, const StepWork& plain, double rows) {
  const double prompt = std::max(1.0, lengths.uncached_prompt_tokens);
  StepWork chunk = plain + StepWork();
  chunk.prefill_tokens = rows;
  chunk.prefill_attention_pairs = rows * lengths.prefill_pairs / prompt;
  chunk.prefill_cached_tokens = std::max(rows / prompt, 1.0) * lengths.prefill_pairs / prompt;
  chunk.sampled_rows += rows / prompt;
  return chunk;
}

}  // namespace

std::vector<ReplicaCurve::Point> AttainmentModel::PointsOf(const ReplicaSpec& replica,
                                                           int micro_batches, double most,
                                                           double step_tokens) const {
  const double context = std::max(1.0, lengths_.mean_decode_context());
  std::vector<ReplicaCurve::Point> points;
  for (int i = 0; i < kPoints; ++i) {
    ReplicaCurve::Point point;
    point.sequences = std::pow(most, static_cast<double>(i) / (kPoints - 1));
    const int lanes = std::clamp(static_cast<int>(std::ceil(point.sequences)), 1, micro_batches);
    point.lanes = lanes;
    const double rows = point.sequences / lanes, room = std::max(1.0, step_tokens - rows);
    const StepWork plain = DecodeWork(std::max(rows, 1.0), context);
    point.plain_seconds = point.chunk_seconds = PeriodOf(model_, replica, plain, lanes).seconds;
    if (replica.role != Role::kDecode) {
      point.chunk_seconds =
          PeriodOf(model_, replica, WithChunk(lengths_, plain, room), lanes).seconds;
      point.long_prompts = LongerThan(room);
      point.prompt_steps = 1;
      for (double rows_before = room; LongerThan(rows_before) > 0; rows_before += room)
        point.prompt_steps += LongerThan(rows_before);
    }
    points.push_back(point);
  }
  return points;
}

ReplicaCurve AttainmentModel::CurveOf(const ReplicaSpec& replica, int micro_batches,
                                      double kv_capacity_tokens, double most_sequences,
                                      double step_tokens) const {
  return *CurveFor(0, replica, micro_batches, kv_capacity_tokens, most_sequences, step_tokens);
}

std::optional<ReplicaCurve> AttainmentModel::CurveFor(double least_rate, const ReplicaSpec& replica,
                                                      int micro_batches, double kv_capacity_tokens,
                                                      double most_sequences,
                                                      double step_tokens) const {
  ReplicaCurve curve;
  const double context = std::max(1.0, lengths_.mean_decode_context());
  curve.kv_tokens = std::max(0.0, kv_capacity_tokens - lengths_.prompt_tokens / 2);
  curve.most_at_once = std::min(most_sequences, micro_batches * kMaxDecoding * step_tokens);
  const double most = std::max(1.0, std::min(curve.most_at_once, curve.kv_tokens / context));
  const double rows = std::max(1.0, kUsualSequences * most / micro_batches);
  const StepWork plain = DecodeWork(rows, context);
  curve.stages =
      SlowedStages(model_, replica, plain,
                   WithChunk(lengths_, plain, std::max(1.0, step_tokens - rows)), micro_batches);
  curve.all_stages = static_cast<double>(replica.stages.size());
  curve.micro_batches = micro_batches;
  curve.step_tokens = step_tokens;
  curve.points = PointsOf(replica, micro_batches, most, step_tokens);
  // Nothing attains where prompts come faster than they are computed with all room there is.
  if (least_rate > 0 && least_rate > kBusiest * WaitsOf(curve, 0, most).most_per_second)
    return std::nullopt;
  const auto beside = [&](double sequences) {
    return PrefillBeside(replica, micro_batches, sequences / micro_batches, step_tokens);
  };
  curve.prefill.push_back(beside(most));
  // How long decoding takes is known with that; prompts beside fewer sequences cost as much again.
  if (least_rate > 0 && !MayDecodeInTime(curve, least_rate)) return std::nullopt;
  for (const double load : kLoads) curve.prefill_beside.push_back(load * most);
  for (size_t i = 0; i + 1 < curve.prefill_beside.size(); ++i)
    curve.prefill.insert(curve.prefill.end() - 1, beside(curve.prefill_beside[i]));
  return curve;
}

StepTimes AttainmentModel::TimesWith(const ReplicaCurve& curve, double sequences) {
  const auto above = std::upper_bound(
      curve.points.begin() + 1, curve.points.end() - 1, sequences,
      [](double n, const ReplicaCurve::Point& point) { return n < point.sequences; });
  const ReplicaCurve::Point &low = *(above - 1), &high = *above;
  const double apart = high.sequences - low.sequences;
  const double t = apart > 0 ? std::clamp((sequences - low.sequences) / apart, 0.0, 1.0) : 0.0;
  const auto between = [&](double a, double b) { return a + t * (b - a); };
  StepTimes times;
  times.plain_seconds = between(low.plain_seconds, high.plain_seconds);
  times.more_seconds = between(low.chunk_seconds, high.chunk_seconds) - times.plain_seconds;
  times.lanes = between(low.lanes, high.lanes);
  times.prompt_steps = between(low.prompt_steps, high.prompt_steps);
  times.long_prompts = between(low.long_prompts, high.long_prompts);
  times.prompt_rows = std::max(1.0, curve.step_tokens - sequences / times.lanes);
  return times;
}

ReplicaPace AttainmentModel::PaceAt(const ReplicaCurve& curve, double sequences,
                                    double rate) const {
  const StepTimes times = TimesWith(curve, sequences);
  const double demand = rate * lengths_.uncached_prompt_tokens / times.prompt_rows;
  ReplicaPace pace;
  double slow = 0;
  pace.period_seconds = times.plain_seconds;
  // What is asked of steps, demand * P(r), is concave in r: where it is less than all of them it is
  // r at one place only, which Newton's steps from r = 1 come to from above.
  pace.chunk_part = 1;
  slow = 1;
  for (int i = 0; i < kRounds; ++i) {
    pace.period_seconds = times.plain_seconds + slow * times.more_seconds;
    const double over = pace.chunk_part - demand * pace.period_seconds;
    if (over <= kTolerance) break;
    const double left = 1 - pace.chunk_part;
    const double slope = 1 - demand * times.more_seconds * curve.stages *
                                 (left > 0           ? (1 - slow) / left
                                  : curve.stages > 1 ? 0.0
                                                     : 1.0);
    pace.chunk_part -= over / slope;
    slow = 1 - std::pow(1 - pace.chunk_part, curve.stages);
  }
  const double in_a_row = std::max(1.0, biased_prompt_tokens_ / times.prompt_rows);
  pace.tpot_seconds = times.lanes * pace.period_seconds;
  pace.spread_seconds = std::sqrt(times.lanes * slow * (1 - slow) * in_a_row) * times.more_seconds;
  return pace;
}

double AttainmentModel::CompletionsAt(const ReplicaCurve& curve, double sequences,
                                      double rate) const {
  return sequences / (PaceAt(curve, sequences, rate).tpot_seconds * lengths_.decode_steps);
}

Attained AttainmentModel::In(const ReplicaCurve& curve, double rate, Company company) const {
  const PromptWaits waits = WaitsOf(curve, rate, company.most);
  for (Chance& chance : company.chances) chance.more_latency_seconds = waits.alone_seconds;
  const double met = waits.stepping.probability;  // whoever waits is one of them
  const Delays delays = met > 0 && std::isfinite(waits.wait.mean_seconds)
                            ? Delays{met,
                                     {waits.wait.probability / met, waits.wait.mean_seconds},
                                     {1, waits.stepping.mean_seconds}}
                            : Delays{1, waits.wait, {}};
  Attained attained = Expect(company.chances, delays, {});
  attained.sequences = company.mean_sequences;
  if (curve.micro_batches <= 1) return attained;
  const auto tpot = [&](double n) {
    const StepTimes times = TimesWith(curve, n);
    const double demand = rate * lengths_.uncached_prompt_tokens / times.prompt_rows;
    return times.lanes *
           PeriodBesidePrompts(times, static_cast<int>(curve.micro_batches), curve.stages, demand);
  };
  const std::vector<double> loads = LoadAt(AskedOf(rate, company.most), [&](double n) {
                                      return n / (tpot(n) * lengths_.decode_steps);
                                    }).sequences;
  const double evenly = std::exchange(attained.tpot_seconds, 0.0);
  for (const double n : loads)
    attained.tpot_seconds += tpot(n + 1) / static_cast<double>(loads.size());
  for (size_t c = 0; c < classes_.size(); ++c) {
    double steps = 0;
    for (const RequestLengths& sample : classes_[c].samples)
      steps += sample.weight * std::max(0.0, sample.output_tokens - 1);
    attained.end_to_end_seconds[c] += steps * (attained.tpot_seconds - evenly);
  }
  return attained;
}

}  // namespace tessera::scheduler
