#include "coordinator/model_host.h"

#include <cstdint>
#include <random>
#include <utility>

#include "coordinator/client_policies.h"
#include "coordinator/deployment/cluster_planner.h"
#include "coordinator/flow/plan_pairs.h"
#include "proto/build_version.h"
#include "scheduler/plan_check/plan_check.h"
#include "third_party/spdlog/log.h"

namespace tessera::coordinator {
namespace {

// Weights as a plan says, else as the flags do, else as they are stored.
std::string FingerprintOf(const v1::ConfigureRequest& configure, const v1::DeploymentPlan* plan) {
  v1::DataType type = configure.model().dtype();
  if (configure.weight_dtype() != v1::DATA_TYPE_UNSPECIFIED) type = configure.weight_dtype();
  if (plan != nullptr && plan->weight_dtype() != v1::DATA_TYPE_UNSPECIFIED)
    type = plan->weight_dtype();
  return SystemFingerprint(BuildVersion(), configure.model_fingerprint(), v1::DataType_Name(type));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelHost>> ModelHost::Make(const CoordinatorOptions& options,
                                                           LoadedModel loaded,
                                                           ModelHostOptions host,
                                                           prometheus::Registry& registry,
                                                           Tracing& tracing) {
  std::unique_ptr<ModelHost> made(new ModelHost());
  ModelHost* raw = made.get();
  made->served_ = loaded.served;
  made->configure_ = std::move(loaded.configure);
  made->vocabulary_.Swap(made->configure_.mutable_vocabulary());
  made->speculation_ = std::move(loaded.speculation);
  const ServedModel& served = *made->served_;
  served.system_fingerprint->Set(FingerprintOf(made->configure_, nullptr));
  made->metrics_ =
      std::make_unique<RequestMetrics>(registry, served.name, served.max_model_len_tokens);
  RequestFlowOptions flow;
  flow.max_model_len_tokens = served.max_model_len_tokens;
  flow.queue_timeout_seconds = options.queue_timeout_seconds;
  flow.recovering = std::move(host.recovering);
  flow.changing_plan = std::move(host.changing_plan);
  flow.now_seconds = host.now_seconds;
  flow.eos_token_ids = {made->configure_.eos_token_ids().begin(),
                        made->configure_.eos_token_ids().end()};
  flow.first_submission_id = uint64_t{std::random_device()()} << 30;
  made->flow_ =
      std::make_shared<RequestFlow>(std::move(flow), served.tokenizer, made->metrics_.get());
  FairServiceOptions fair;
  fair.policies = PoliciesOf(host.keys);
  fair.queue_places = [raw, max = int64_t{options.max_waiting}] {
    return max * raw->flow_->ready_replicas();
  };
  fair.now_seconds = host.now_seconds;
  fair.expected_seconds = [raw](double prompt_tokens, double answer_tokens) {
    return raw->flow_->ExpectedSeconds(prompt_tokens, answer_tokens);
  };
  made->resumption_ = std::make_unique<Resumption>(made->flow_);
  made->fair_ = FairService::Make(std::move(fair), *made->resumption_);
  auto replanning = WorkloadReplanning::Make(
      options, made->configure_, [raw] { return raw->metrics_->draft_counts(); }, *made->fair_);
  if (!replanning.ok()) return replanning.status();
  made->replanning_ = *std::move(replanning);
  made->entry_ = &tracing.Before(made->replanning_->door(), served.name);
  return made;
}

void ModelHost::AbortAll(const absl::Status& reason) {
  resumption_->AbortAll(reason);  // first: they become requests of the flow
  flow_->AbortAll(reason);
}

ServedEntry ModelHost::door() {
  return {.model = served_, .service = entry_, .limits = [this](const std::string& client) {
            return fair_->LimitHeaders(client);
          }};
}

v1::DraftTerms ModelHost::SeenDrafts() const {
  v1::DraftTerms drafts = DraftsOfWorkers(configure_).value_or(v1::DraftTerms());
  CountOnMeasured(metrics_->draft_counts(), &drafts);
  return drafts;
}

DeployedModel ModelHost::TakeDeployed() {
  DeployedModel deployed;
  deployed.configure = configure_;
  deployed.configure.mutable_vocabulary()->Swap(&vocabulary_);
  deployed.requests = flow_.get();
  deployed.on_plan = [this](const v1::DeploymentPlan* in_force) { OnPlan(in_force); };
  deployed.work_of = [this](const std::string& replica) { return flow_->WorkOf(replica); };
  return deployed;
}

ClusterModel ModelHost::in_cluster() const {
  return {.name = served_->name,
          .speculation = speculation_,
          .folder = configure_.model_folder(),
          .fingerprint = configure_.model_fingerprint(),
          .flow = flow_.get()};
}

void ModelHost::OnPlan(const v1::DeploymentPlan* in_force) {
  // Requests go where such a plan sends them; without one by load alone.
  flow_->SetPairs(in_force == nullptr ? PlanPairs() : PlanPairs(*in_force));
  served_->system_fingerprint->Set(FingerprintOf(configure_, in_force));
  if (in_force == nullptr) return;
  // Without one, each replica has the KV that fits beside its weights.
  const std::string warning = scheduler::ShortKvWarning(*in_force, served_->max_model_len_tokens);
  if (!warning.empty()) Logger("coordinator").warn("{}", warning);
}

}  // namespace tessera::coordinator
