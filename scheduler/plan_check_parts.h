// What the two halves of plan_check share, and plan_diff: bytes and operations of a worker, from
// its ranges alone. Thread rule: pure functions.
#pragma once

#include "absl/status/status.h"
#include "proto/plan.pb.h"

namespace tessera::scheduler {

struct HeldByWorker {
  double weight_bytes = 0;
  double kv_bytes_per_token = 0;
  // What a token needs at least: routed experts count with the share that the router picks.
  double parameters_per_token = 0;
  double bytes_read_per_token = 0;  // the same in bytes, embedding rows left out
};
HeldByWorker HeldBy(const v1::DeploymentPlan& plan, const v1::WorkerShare& share);

double WeightElementBytes(const v1::DeploymentPlan& plan);
double KvElementBytes(const v1::DeploymentPlan& plan);
double ActivationElementBytes(const v1::DeploymentPlan& plan);

// Figures of the plan by itself: memory, KV, load of replicas.
absl::Status CheckFigures(const v1::DeploymentPlan& plan);

// What is promised for the loss of a machine: no more than the replicas elsewhere serve.
absl::Status CheckSurvival(const v1::DeploymentPlan& plan);

}  // namespace tessera::scheduler
