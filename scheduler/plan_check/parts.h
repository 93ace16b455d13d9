// What the two halves of plan_check share, and plan_diff: bytes and operations of a worker, from
// its ranges alone. Thread rule: pure functions.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "proto/cluster.pb.h"
#include "proto/layers/layer_sizes.h"
#include "proto/plan.pb.h"

namespace tessera::scheduler {

struct HeldByWorker {
  double weight_bytes = 0;
  double kv_bytes_per_token = 0;      // of layers that keep every token of a sequence
  double window_bytes_per_token = 0;  // of layers that keep a window of each
  double state_bytes = 0;             // of a sequence, however long it is
  // What a token needs at least: routed experts count with the share that the router picks.
  double parameters_per_token = 0;
  double bytes_read_per_token = 0;  // the same in bytes, embedding rows left out
};
HeldByWorker HeldBy(const v1::DeploymentPlan& plan, const v1::WorkerShare& share);

double WeightElementBytes(const v1::DeploymentPlan& plan);
KvElement KvElementOf(const v1::DeploymentPlan& plan);
double ActivationElementBytes();
// Bytes of an element of a hidden row between ranks and stages.
double WireElementBytes(const v1::DeploymentPlan& plan);

// Figures of the plan by itself: memory, KV, load of replicas.
absl::Status CheckFigures(const v1::DeploymentPlan& plan);

// What a replica needs at least, at the peaks of its devices.
struct LeastSeconds {
  double per_prompt_token = 0;  // through all stages
  double per_output_token = 0;  // reading the weights, which any step does
};

// Which part of the requests is said to meet its limits: shares and sums hold, a plan for goodput
// attains what is asked for, and nothing is promised that the predicted TPOT and, where known, the
// least seconds of replicas (by name) rule out.
absl::Status CheckAttainment(const v1::DeploymentPlan& plan,
                             const std::map<std::string, LeastSeconds>& least);

// What the plan says of itself adds up: a basis wherever something is promised, tokens from
// requests, all of the promised rate routed, value, bound and gap of the certificate.
absl::Status CheckPromises(const v1::DeploymentPlan& plan);

// What replicas are predicted to do at the rate of the basis can go on: latencies are given
// wherever requests are sent and are none of days, and what decodes at once may.
absl::Status CheckSteadyState(const v1::DeploymentPlan& plan);

// Money: what spot and on-demand machines cost together, and USD per million output tokens, from
// the prices of machines or else of kinds (by the name that the description uses; 0: not known).
// Requires that every device of the plan is in the cluster.
absl::Status CheckPrices(const v1::DeploymentPlan& plan, const v1::Cluster& cluster,
                         const std::map<std::string, double>& kind_prices);

// What is promised for the loss of a machine: no more than the replicas elsewhere serve.
absl::Status CheckSurvival(const v1::DeploymentPlan& plan);

}  // namespace tessera::scheduler
