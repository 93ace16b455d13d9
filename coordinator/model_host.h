// One served model in the coordinator: what its requests pass between the doors and its replicas.
//
//   door -> tracing -> count of the workload -> fair service -> resumption -> request flow ->
//   replicas
//
// Thread rule: made and destroyed by main's thread; everything else is thread-safe.
#pragma once

#include <prometheus/registry.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/api/key_ring.h"
#include "coordinator/api/served_models.h"
#include "coordinator/coordinator_options.h"
#include "coordinator/deployment/cluster_service.h"
#include "coordinator/deployment/deployment.h"
#include "coordinator/fairness/fair_service.h"
#include "coordinator/flow/request_flow.h"
#include "coordinator/flow/request_metrics.h"
#include "coordinator/flow/resumption.h"
#include "coordinator/served_model.h"
#include "coordinator/tracing/tracing.h"
#include "coordinator/workload_replanning.h"
#include "proto/worker.pb.h"

namespace tessera::coordinator {

struct ModelHostOptions {
  KeyRing keys;
  // As in RequestFlowOptions.
  std::function<bool()> recovering, changing_plan;
  std::function<double()> now_seconds;  // monotonic
};

class ModelHost {
 public:
  // `registry` and `tracing` outlive it. Errors: those of the files that `options` name for
  // planning.
  static absl::StatusOr<std::unique_ptr<ModelHost>> Make(const CoordinatorOptions& options,
                                                         LoadedModel loaded, ModelHostOptions host,
                                                         prometheus::Registry& registry,
                                                         Tracing& tracing);

  const ServedModel& served() const { return *served_; }
  // The part of Configure that all its workers share, without the vocabulary.
  const v1::ConfigureRequest& configure() const { return configure_; }
  // The drafts that its workers try; how many stand is measured, or, of few, estimated.
  v1::DraftTerms SeenDrafts() const;
  RequestFlow& flow() { return *flow_; }
  FairService& fair() { return *fair_; }
  RequestMetrics& metrics() { return *metrics_; }
  WorkloadReplanning& replanning() { return *replanning_; }

  // Ends everything that is left, with `reason`.
  void AbortAll(const absl::Status& reason);

  // For the front doors, for the deployment and for the cluster's status. It outlives all of them.
  ServedEntry door();
  DeployedModel TakeDeployed();  // once
  ClusterModel in_cluster() const;

 private:
  ModelHost() = default;
  // A plan with chosen devices (null: none) is in force.
  void OnPlan(const v1::DeploymentPlan* in_force);

  std::shared_ptr<const ServedModel> served_;
  v1::ConfigureRequest configure_;
  google::protobuf::RepeatedPtrField<std::string> vocabulary_;  // until TakeDeployed
  std::string speculation_;
  std::unique_ptr<RequestMetrics> metrics_;
  std::shared_ptr<RequestFlow> flow_;
  std::unique_ptr<Resumption> resumption_;          // before it
  std::unique_ptr<FairService> fair_;               // before that
  std::unique_ptr<WorkloadReplanning> replanning_;  // before `fair_`
  GenerationService* entry_ = nullptr;              // before that
};

}  // namespace tessera::coordinator
