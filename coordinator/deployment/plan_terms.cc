#include "coordinator/deployment/plan_terms.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "scheduler/plan_check.h"

namespace tessera::coordinator {
namespace {

// Where neither a flag nor the plan says them.
constexpr int32_t kDefaultBatchedTokens = 512;
constexpr int32_t kDefaultSequences = 64;

absl::Status CheckTypes(const char* what, const char* field, const char* flags,
                        v1::DataType planned, v1::DataType asked) {
  if (planned == v1::DATA_TYPE_UNSPECIFIED || asked == v1::DATA_TYPE_UNSPECIFIED ||
      planned == asked) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the plan keeps ", what, " as ", v1::DataType_Name(planned), " (", field, "), ", flags,
      " asks for ", v1::DataType_Name(asked), ": leave the flag out, or plan with that type"));
}

absl::Status CheckPoolBytes(const v1::DeploymentPlan& plan, int64_t asked_bytes) {
  for (const v1::Replica& replica : plan.replicas()) {
    const v1::PlannedWorker& worker = replica.stages(0).workers(0);
    if (asked_bytes == 0 || worker.kv_bytes() == 0 || worker.kv_bytes() == asked_bytes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the plan gives the KV pool of ", worker.device(), " ", worker.kv_bytes(),
                     " bytes (kv_bytes), --kv-cache-memory-bytes asks for ", asked_bytes,
                     ": leave the flag out, or plan with that size"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCarriedOut(const v1::DeploymentPlan& plan) {
  for (const v1::Replica& replica : plan.replicas()) {
    if (replica.role() != v1::REPLICA_ROLE_BOTH) {
      return absl::UnimplementedError(absl::StrCat(
          "replica ", replica.name(),
          " only prefills or only decodes; this build carries out replicas of role both"));
    }
    if (replica.stages_size() != 1 || replica.stages(0).workers_size() != 1) {
      return absl::UnimplementedError(
          absl::StrCat("replica ", replica.name(), " has ", replica.stages_size(),
                       " stages, the first of ", replica.stages(0).workers_size(),
                       " workers; this build carries out one stage of one worker"));
    }
  }
  for (const v1::RoutingShare& route : plan.routing()) {
    if (route.prefill_replica() == route.decode_replica()) continue;
    return absl::UnimplementedError(absl::StrCat(
        "the plan's routing sends prompts of ", route.prefill_replica(), " to ",
        route.decode_replica(), " to decode; this build keeps a request at one replica"));
  }
  return absl::OkStatus();
}

absl::Status CheckPlanTerms(const v1::DeploymentPlan& plan, const v1::ConfigureRequest& configure) {
  if (absl::Status s = scheduler::CheckPlan(plan); !s.ok()) return s;
  if (absl::Status s = scheduler::CheckPlanIsFor(plan, configure.model()); !s.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("the plan was made for ", plan.model().name(),
                                                   ", ", configure.model().name(),
                                                   " is served: ", std::string(s.message())));
  }
  if (absl::Status s = CheckCarriedOut(plan); !s.ok()) return s;
  absl::Status types = CheckTypes("weights", "weight_dtype", "--dtype or --quantization",
                                  plan.weight_dtype(), configure.weight_dtype());
  types.Update(
      CheckTypes("KV", "kv_dtype", "--kv-cache-dtype", plan.kv_dtype(), configure.kv_dtype()));
  types.Update(CheckPoolBytes(plan, configure.kv_cache_bytes()));
  return types;
}

void ApplyPlan(const v1::DeploymentPlan& plan, const v1::Replica& replica,
               v1::ConfigureRequest& request) {
  const v1::PlannedWorker& worker = replica.stages(0).workers(0);
  request.set_replica(replica.name());
  request.set_role(replica.role());
  *request.mutable_share() = worker.share();
  if (plan.weight_dtype() != v1::DATA_TYPE_UNSPECIFIED)
    request.set_weight_dtype(plan.weight_dtype());
  if (plan.kv_dtype() != v1::DATA_TYPE_UNSPECIFIED) request.set_kv_dtype(plan.kv_dtype());
  if (worker.kv_bytes() > 0) request.set_kv_cache_bytes(worker.kv_bytes());
  if (request.max_sequences() == 0) {
    request.set_max_sequences(replica.max_sequences() > 0
                                  ? static_cast<int32_t>(replica.max_sequences())
                                  : kDefaultSequences);
  }
  if (request.max_batched_tokens() == 0) {
    request.set_max_batched_tokens(replica.max_batched_tokens() > 0
                                       ? static_cast<int32_t>(replica.max_batched_tokens())
                                       : kDefaultBatchedTokens);
  }
}

}  // namespace tessera::coordinator
