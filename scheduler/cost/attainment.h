// Which part of the requests meets its latency objectives, and the largest rate at which enough do.
//
// A request of p prompt tokens (q of them not cached) and `out` output tokens that waits W,
// prefills in L(q) and then decodes at TPOT per token, its KV arriving after X where it is decoded
// elsewhere, has
//   TTFT = W + L(q),   TPOT = tpot + X / (out - 1),   end to end = TTFT + X + (out - 1) * tpot.
// X delays the second token, not the first. Its probability to be within its limits T, P, E is
//   0 where tpot + X/(out - 1) > P, else 1 - P(W > min(T - L, E - L - X - (out - 1) * tpot)),
// and the attainment of a class is the mean over its lengths and over what tpot and L may be:
//
// - W is that of a queue for the rows of steps and for room among the sequences and in the KV; the
//   two hold each other up (prompt_waits.h). Of a split pair it is two, one after the other:
//   for the prompts in front (prefill_waits.cc), and for room (load_states.h).
// - tpot and L depend on how many sequences decode meanwhile, n, which varies (load_states.h).
// - Steps are not alike: of those of B rows, b of them decoding, the part r that carries a chunk of
//   B - b prompt rows takes P_B, the rest P_0. Prompts come at rate * E[q], so
//     r = rate * E[q] * P / (B - b),   P = P_0 + (1 - (1 - r)^S) * (P_B - P_0):
//   a long step is long in each of S stages, and micro-batches in the others wait for it.
//   TPOT = m * P; a request of o decode steps sees o of them, so its own TPOT is spread normally by
//     sqrt(m * s * (1 - s) * g / o) * (P_B - P_0),   s = 1 - (1 - r)^S,
//   g the steps in a row that a prompt's chunks lengthen (that of a token, not of a prompt).
// - Room is for sequences of the mean context, less half a prompt that the next in the queue does
//   not find yet, less the prompts being computed, rate * E[L * p] tokens (Little's law).
// - Steps are whole: what that adds to L and W is prompt_waits.h's too; for those who find prompts
//   it is as uneven as a wait, exponential.
// - Of a split pair a request first waits for room where it will decode, for its prompt and a
//   token, and keeps it: rate * E[p * (W + L + X)] tokens of the KV there belong to prompts in the
//   queue, computed or on their way (Little's law), the others to who decodes. Steps carry no
//   chunks.
//
// Where a queue grows without end nothing attains, whatever the limits. All waits grow with the
// rate, so attainment falls, and the largest rate at which every class still attains what it asks
// for is found by false position. Small B keeps TPOT low and lets prompts wait, so B is chosen with
// the rate. L and the service in front of prefill are computed at up to kKnots prompt lengths of
// each class and kLoads values of n, and interpolated. Left out: that n changes while a request
// decodes, and that a router sends requests where fewest are, both of which attain more; and
// preemption, which attains less. Source: planning's queue formulas (queue.h, replica_cost.h); the
// definition of goodput is DistServe's (OSDI 2024). Thread rule: const after construction; borrows
// what it is given. Units: seconds, tokens, requests per second.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/cost/lengths.h"
#include "scheduler/cost/load_states.h"
#include "scheduler/cost/prompt_waits.h"
#include "scheduler/cost/queue.h"
#include "scheduler/cost/replica_cost.h"

namespace tessera::scheduler {

// Infinite: no limit.
struct LatencyLimits {
  double ttft_seconds = std::numeric_limits<double>::infinity();  // from arrival
  double tpot_seconds = std::numeric_limits<double>::infinity();  // mean, after the first token
  double end_to_end_seconds = std::numeric_limits<double>::infinity();

  bool any() const;
};

// Requests that have their lengths and objectives in common.
struct RequestClass {
  std::string name;
  double share = 1;                     // of the arrival rate; those of all classes sum to 1
  std::vector<RequestLengths> samples;  // weights sum to 1
  LatencyLimits limits;
  double required_attainment = 0.99;  // part of the requests that must meet all limits
  int judged_with = 0;                // classes of the same number must reach it together
};

// Whether any class has a limit.
bool AnyLimits(const std::vector<RequestClass>& classes);

// Whether any class limits what a wait is part of: TTFT or end to end.
bool LimitsWaits(const std::vector<RequestClass>& classes);

// How much more of all requests attain than is asked for, of the group of classes that has least to
// spare: below 0 where one has not enough.
double SpareAttained(const std::vector<RequestClass>& classes, const std::vector<double>& by_class);

// Whether every group of classes attains what it asks for.
bool EnoughAttained(const std::vector<RequestClass>& classes, const std::vector<double>& by_class);

// The least limit of TPOT of any class, for plans that keep it for all requests. Infinite: none.
double LeastTpotLimit(const std::vector<RequestClass>& classes);

// The largest TPOT at which enough requests of every class can be within their limits however fast
// the rest is: of (P, E / (out - 1)) the quantile that must be reached. Infinite: none. A necessary
// condition, so searches may take it as a limit without losing any answer.
double LargestUsefulTpot(const std::vector<RequestClass>& classes);

// The way of KV from the replica that prefills to the one that decodes.
struct KvPath {
  LinkSpec link;  // infinitely fast: it stays
  KvCodec codec = KvCodec::kRaw;
  KvCodecRates codec_rates;
};

// The speed of a replica that prefills while so many rows decode.
struct PrefillSpeed {
  ServiceMoments service;                            // of all classes, in front of prefill
  std::vector<std::vector<double>> latency_seconds;  // L, by class and sample
};

// A replica of role both with steps of one size: what does not depend on the rate.
struct ReplicaCurve {
  struct Point {  // with so many sequences decoding
    double sequences = 0;
    double lanes = 1;                             // micro-batches with somebody in them
    double plain_seconds = 0, chunk_seconds = 0;  // P_0, P_B
    double prompt_steps = 1, long_prompts = 0;    // E[K], P(K > 1) of prompt_waits.h
  };
  std::vector<Point> points;           // ascending
  std::vector<double> prefill_beside;  // sequences, ascending
  std::vector<PrefillSpeed> prefill;   // beside these
  double stages = 1;      // that a long step slows: fewer than there are where they differ
  double all_stages = 1;  // that there are
  double micro_batches = 1;
  double step_tokens = 0;
  double kv_tokens = 0;     // for sequences and prompts
  double most_at_once = 0;  // sequences and prompts that the batcher takes
};

// How steps follow each other.
struct ReplicaPace {
  double period_seconds = 0;  // mean
  double tpot_seconds = 0;
  double spread_seconds = 0;  // of the TPOT of a request of one decode step
  double chunk_part = 0;      // r; 1: prompts come faster than they are computed
};

// What a request meets where it decodes, another replica having computed its prompt.
struct DecodeLoad {
  std::vector<double> tpot_seconds;  // equally likely
  Wait room;                         // before its prompt is looked at

  double mean_tpot_seconds() const;
};

struct Attained {
  std::vector<double> by_class;            // part of the requests within all limits
  std::vector<double> ttft_seconds;        // mean, by class; infinite beyond saturation
  std::vector<double> end_to_end_seconds;  // the same
  double all = 0;                          // mean over all requests
  double tpot_seconds = 0;                 // mean
  double sequences = 0;                    // that decode at once, mean; of role both
};

class AttainmentModel {
 public:
  AttainmentModel(const ModelShape& model, const std::vector<RequestClass>& classes,
                  const ReplicaOptions& options, double arrival_variation);

  const LengthMoments& lengths() const { return lengths_; }  // of all classes together

  // Prompts beside `decode_rows` rows, in steps of `step_tokens` rows; 0: as large as they may be.
  PrefillSpeed PrefillBeside(const ReplicaSpec& replica, int micro_batches, double decode_rows,
                             double step_tokens) const;
  // `most_sequences`: at once, in all micro-batches together.
  ReplicaCurve CurveOf(const ReplicaSpec& replica, int micro_batches, double kv_capacity_tokens,
                       double most_sequences, double step_tokens) const;
  // Sequences that may decode while prompts of `rate` requests per second are computed.
  double MostDecoding(const ReplicaCurve& curve, double rate) const;
  // With `sequences` decoding and prompts of `rate` requests per second between them.
  ReplicaPace PaceAt(const ReplicaCurve& curve, double sequences, double rate) const;
  // What a replica of role both attains at `rate`.
  Attained At(const ReplicaCurve& curve, double rate) const;
  // At `rate` into a replica that prefills at `speed`, decoding under `decode` wherever `path`
  // leads; null: the KV has no way to go.
  Attained At(const PrefillSpeed& speed, double rate, const DecodeLoad& decode,
              const KvPath* path = nullptr) const;

  // The curve of a replica that only decodes.
  ReplicaCurve DecodeCurveOf(const ReplicaSpec& replica, int micro_batches,
                             double kv_capacity_tokens, double most_sequences) const;
  // At `rate`, with so many tokens of its KV kept for prompts that have not come yet.
  DecodeLoad LoadOf(const ReplicaCurve& decode, double rate, double kept_tokens) const;
  // How long how many tokens are kept for a request before it decodes, E[p * (W + L + X)], where
  // prompts come at `rate`; token seconds, infinite beyond saturation.
  double KeptBefore(const PrefillSpeed& speed, double rate, const KvPath& path) const;

  // `capacity` of a replica of role both, its rate (and what comes with it) lowered to the largest
  // at which enough requests are within their limits, with the step size that allows most; 0 where
  // even one alone is not. Where that is no more than `known`, which somebody has, 0 is the answer,
  // and comes sooner.
  ReplicaRate WithinLimits(const ReplicaSpec& replica, const ReplicaRate& capacity,
                           double known = 0) const;
  // The largest rate up to `capacity` at which enough requests are within their limits, which
  // fewer are at higher ones.
  double LargestWithinLimits(double capacity, const std::function<Attained(double)>& at) const;

 private:
  // The highest part of what prompts or sequences saturate; above, waits have no end.
  static constexpr double kBusiest = 0.98;

  // One of the things that may happen to a request.
  struct Chance {
    double weight = 1;
    const PrefillSpeed* speed = nullptr;
    double more_latency_seconds = 0;
    double tpot_seconds = 0;
    double spread_per_step_seconds = 0;  // of TPOT, shrinking with the root of the steps
  };
  // Whom a request may find decoding.
  struct Company {
    double most = 1;                   // sequences at once
    double mean_sequences = 0;         // of them
    std::vector<double> sequences;     // by chance
    std::vector<PrefillSpeed> speeds;  // by chance
    std::vector<Chance> chances;       // without waits; they borrow the speeds
  };
  // What comes before its prompt is computed: for nobody with 1 - probability, else one of these,
  // both or neither.
  struct Delays {
    double probability = 1;
    Wait first, second;

    double mean() const { return probability * (first.mean() + second.mean()); }
    double Exceed(double seconds) const;  // part of all requests
  };
  // By class and sample; empty: nothing is sent.
  using SentSeconds = std::vector<std::vector<double>>;

  // fn(class, sample, part of all requests).
  template <typename Fn>
  void ForEachSample(const Fn& fn) const {
    for (size_t c = 0; c < classes_.size(); ++c) {
      const std::vector<RequestLengths>& samples = classes_[c].samples;
      for (size_t i = 0; i < samples.size(); ++i) fn(c, i, classes_[c].share * samples[i].weight);
    }
  }
  Attained Expect(const std::vector<Chance>& chances, const Delays& delays,
                  const SentSeconds& sent) const;
  void Expect(size_t request_class, const Chance& chance, const Delays& delays,
              const SentSeconds& sent, Attained* sum) const;
  SentSeconds SentOf(const PrefillSpeed& speed, const KvPath& path) const;
  Wait WaitForStep(const PrefillSpeed& speed, const PrefillSpeed& behind, double rate) const;
  // The speed of prompts at `rate`, each behind those before it.
  PrefillSpeed BehindOthers(const PrefillSpeed& speed, double rate) const;
  Company CompanyAt(const ReplicaCurve& curve, double rate) const;
  // The same without speeds; of the curve's, only the one beside the most sequences is looked at.
  Company DecodingAt(const ReplicaCurve& curve, double rate) const;
  // Whether enough would be in time if prompts took none: the least that a rate takes to attain.
  bool MayDecodeInTime(const ReplicaCurve& curve, double rate) const;
  // What those attain who come into it, waits and all.
  Attained In(const ReplicaCurve& curve, double rate, Company company) const;
  static StepTimes TimesWith(const ReplicaCurve& curve, double sequences);
  // Part of the prompts with more rows.
  double LongerThan(double rows) const;
  // Waits of a replica of role both, with room for so many sequences: for rows and for room.
  PromptWaits WaitsOf(const ReplicaCurve& curve, double rate, double most) const;
  // The queue of a replica that prefills.
  Wait PromptQueue(double rate, const ServiceMoments& service) const;
  LoadAsked AskedOf(double rate, double most) const;
  double CompletionsAt(const ReplicaCurve& curve, double sequences, double rate) const;
  std::vector<ReplicaCurve::Point> PointsOf(const ReplicaSpec& replica, int micro_batches,
                                            double most, double step_tokens) const;
  // None: a rate of `least_rate` has no end of waits, whatever the speed of a single prompt.
  std::optional<ReplicaCurve> CurveFor(double least_rate, const ReplicaSpec& replica,
                                       int micro_batches, double kv_capacity_tokens,
                                       double most_sequences, double step_tokens) const;
  PrefillSpeed SpeedAt(const ReplicaCurve& curve, double sequences) const;

  struct Knots {                  // of a class
    std::vector<double> prompts;  // tokens, ascending
    std::vector<size_t> below;    // by sample: knot at or below its prompt
    std::vector<double> towards;  // by sample: how far to the next, 0..1
    double prefix_hit_rate = 0;
  };

  const ModelShape& model_;
  const std::vector<RequestClass>& classes_;
  const ReplicaOptions& options_;
  const double arrival_variation_;
  LengthMoments lengths_;
  std::vector<double> prompt_rows_;  // not cached, of the samples, ascending
  std::vector<double> weight_from_;  // of each of these and those after it; behind the last 0
  double prompt_variation_ = 0;      // of the rows of prompts, over their mean
  double step_variation_ = 0;        // of the decode steps of requests, over their mean
  double biased_prompt_tokens_ = 0;  // uncached, of the prompt of a prompt token
  std::vector<Knots> knots_;         // by class
};

}  // namespace tessera::scheduler
