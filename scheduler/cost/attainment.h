// Which part of the requests meets its latency objectives, and the largest rate at which enough do.
//
// A request of p prompt tokens (q of them not cached) and `out` output tokens that meets a queue of
// wait W, prefills in L(q) and then decodes at TPOT per token, its KV arriving after X where it is
// decoded elsewhere, has
//   TTFT = W + L(q),   TPOT = tpot + X / (out - 1),   end to end = TTFT + X + (out - 1) * tpot.
// X delays the second token, not the first. The wait is M/G/1's with Kingman's correction and an
// exponential tail (queue.h): P(W > t) = rho * exp(-rho * t / E[W]). So a request is within its
// limits T, P, E with the probability
//   0 where tpot + X/(out - 1) > P, else 1 - P(W > min(T - L, E - L - X - (out - 1) * tpot)),
// and the attainment of a class is the mean over its lengths. tpot, L, rho and E[W] all grow with
// the rate, so attainment falls, and the largest rate at which every class still attains what it
// asks for is found by bisection.
//
// Steps are not alike: of a replica whose steps have B rows, b of them decoding, the part
//   r = b * E[q] / (E[o] * (B - b))
// carries a chunk of B - b prompt rows and takes P_B, the rest P_0. A long step is long in every
// stage it passes, and the micro-batches in the other stages wait for it, so of S stages the mean
// period is P_0 + (1 - (1 - r)^S) * (P_B - P_0), the rate b / (period * E[o]), TPOT = m * period.
// The queue's server takes q / (B - b) * P_B; a prompt's next chunk waits until the one before has
// left the pipeline. Small B keeps TPOT low and lets prompts wait, so B is chosen with the rate. L
// and the service in front of prefill are computed at up to kKnots prompt lengths of each class and
// interpolated between them. TPOT is that of the mean step: its spread between requests is left
// out. Source: planning's queue formulas (queue.h, replica_cost.h); the definition of goodput is
// DistServe's (OSDI 2024). Thread rule: const after construction; borrows what it is given. Units:
// seconds, tokens, requests per second.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "scheduler/cost/lengths.h"
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

// Of a replica that prefills while so many rows decode.
struct PrefillSpeed {
  ServiceMoments service;                            // of all classes, in front of prefill
  std::vector<std::vector<double>> latency_seconds;  // L, by class and sample
};

// How steps follow each other.
struct ReplicaPace {
  double requests_per_second = 0;
  double period_seconds = 0;  // mean
  double tpot_seconds = 0;
  double chunk_part = 0;  // of the steps that carry chunks of prompts; 1 and more: out of reach
};

struct Attained {
  std::vector<double> by_class;            // part of the requests within all limits
  std::vector<double> ttft_seconds;        // mean, by class; infinite beyond saturation
  std::vector<double> end_to_end_seconds;  // the same
  double all = 0;                          // mean over all requests
};

class AttainmentModel {
 public:
  AttainmentModel(const ModelShape& model, const std::vector<RequestClass>& classes,
                  const ReplicaOptions& options, double arrival_variation);

  const LengthMoments& lengths() const { return lengths_; }  // of all classes together

  // Prompts beside `decode_rows` rows, in steps of `step_tokens` rows; 0: as large as they may be.
  PrefillSpeed PrefillBeside(const ReplicaSpec& replica, int micro_batches, double decode_rows,
                             double step_tokens) const;
  // Role both, `decode_rows` rows decoding in steps of `step_tokens`.
  ReplicaPace PaceBeside(const ReplicaSpec& replica, int micro_batches, double decode_rows,
                         double step_tokens) const;
  // Rows that decode at this rate; the most there can be where it is out of reach.
  double RowsAtRate(const ReplicaSpec& replica, int micro_batches, double rate,
                    double step_tokens) const;
  // At `rate` into a replica that prefills at `speed`, decoding at `tpot_seconds` wherever `path`
  // leads; null: in the same replica.
  Attained At(const PrefillSpeed& speed, double rate, double tpot_seconds,
              const KvPath* path = nullptr) const;
  // `capacity` of a replica of role both, its rate (and what comes with it) lowered to the largest
  // at which enough requests are within their limits, with the step size that allows most; 0 where
  // even one alone is not.
  ReplicaRate WithinLimits(const ReplicaSpec& replica, const ReplicaRate& capacity) const;
  // The largest rate up to `capacity` of a replica that only prefills, for decoding at
  // `tpot_seconds` behind `path`.
  double PrefillRateWithinLimits(const PrefillSpeed& speed, double capacity, double tpot_seconds,
                                 const KvPath* path) const;

 private:
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
  std::vector<Knots> knots_;  // by class
};

}  // namespace tessera::scheduler
