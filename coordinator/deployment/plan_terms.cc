#include "coordinator/deployment/plan_terms.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "scheduler/plan_check/plan_check.h"
#include "third_party/spdlog/log.h"

namespace tessera::coordinator {
namespace {

// Ranks of one stage.
constexpr int kMaxStageWidth = 8;

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
  if (asked_bytes == 0) return absl::OkStatus();
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers()) {
        if (worker.kv_bytes() == 0 || worker.kv_bytes() == asked_bytes) continue;
        return absl::InvalidArgumentError(
            absl::StrCat("the plan gives the KV pool of ", worker.device(), " ", worker.kv_bytes(),
                         " bytes (kv_bytes), --kv-cache-memory-bytes asks for ", asked_bytes,
                         ": leave the flag out, or plan with that size"));
      }
    }
  }
  return absl::OkStatus();
}

bool IsEmpty(const v1::Range& range) { return range.end() <= range.begin(); }

// What a rank has nothing of although its model has some; empty: it has a part of everything.
const char* NothingOf(const v1::Model& model, const v1::WorkerShare& share) {
  for (int i = 0; i < std::min(model.kinds_size(), share.kinds_size()); ++i) {
    const v1::Ffn& ffn = model.kinds(i).ffn();
    if (model.kinds(i).has_delta()) {
      if (IsEmpty(share.kinds(i).key_groups())) return "key groups";
    } else if (IsEmpty(share.kinds(i).query_heads())) {
      return "query heads";
    }
    if (IsEmpty(share.kinds(i).ffn_columns()) && ffn.width() > 0) return "ffn columns";
    if (IsEmpty(share.kinds(i).experts()) && ffn.experts().count() > 0) return "experts";
  }
  const bool holds_tables = share.holds_embedding() || share.holds_head();
  return holds_tables && IsEmpty(share.vocabulary_rows()) ? "vocabulary rows" : "";
}

absl::Status CheckWidth(const v1::DeploymentPlan& plan, const v1::Replica& replica, int index) {
  const v1::Stage& stage = replica.stages(index);
  const std::string where = absl::StrCat("replica ", replica.name(), ", stage ", index);
  if (stage.workers_size() > kMaxStageWidth) {
    return absl::UnimplementedError(absl::StrCat(where, " has ", stage.workers_size(),
                                                 " workers; this build supports at most ",
                                                 kMaxStageWidth, " per stage"));
  }
  for (int rank = 0; rank < stage.workers_size(); ++rank) {
    const std::string nothing = NothingOf(plan.model(), stage.workers(rank).share());
    if (nothing.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": device ", stage.workers(rank).device(), " (rank ", rank, " of ",
                     stage.workers_size(), ") holds no ", nothing,
                     ": every worker must hold a part, so the stage must be narrower"));
  }
  return absl::OkStatus();
}

bool PlansKv(const v1::DeploymentPlan& plan) {
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers()) {
        if (worker.kv_bytes() > 0) return true;
      }
    }
  }
  return false;
}

// What drafts takes memory, which workers lack where a plan that says their KV did not count it.
absl::Status CheckDrafts(const v1::DeploymentPlan& plan, const v1::Model& model) {
  const bool head = model.draft_head().used() && !plan.model().draft_head().used();
  const bool drafter = model.has_draft_model() && !plan.model().has_draft_model();
  if ((!head && !drafter) || !PlansKv(plan)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the plan has no memory for the ", head ? "head for further tokens" : "draft model",
      " that --speculate asks for: make it with tessera plan --speculate ",
      head ? "mtp" : absl::StrCat("draft:", model.draft_model().folder()), ", or use --speculate ",
      "ngram, or off"));
}

// A plan's rates and latencies count on drafts that nobody tries.
void WarnOfDrafts(const v1::DeploymentPlan& plan, const v1::ConfigureRequest& configure) {
  const v1::DraftTerms& planned = plan.assumptions().planning().drafts();
  const bool off = configure.speculation() == v1::SPECULATION_UNSPECIFIED ||
                   configure.speculation() == v1::SPECULATION_OFF;
  if (planned.draft_tokens() == 0 || planned.acceptance() <= 0 || !off) return;
  Logger("coordinator")
      .warn(
          "the plan counts on drafts of {} and none are tried: its rates will not be reached; "
          "start "
          "with --speculate {}, or make the plan without",
          planned.source(), planned.source());
}

}  // namespace

absl::Status CheckCarriedOut(const v1::DeploymentPlan& plan) {
  for (const v1::Replica& replica : plan.replicas()) {
    for (int stage = 0; stage < replica.stages_size(); ++stage) {
      if (absl::Status s = CheckWidth(plan, replica, stage); !s.ok()) return s;
    }
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
  types.Update(CheckDrafts(plan, configure.model()));
  if (types.ok()) WarnOfDrafts(plan, configure);
  return types;
}

absl::Status CheckRoom(const v1::PlannedWorker& worker, int64_t registered_bytes) {
  // As doubles, which no figures of a file can overflow.
  const double needed = static_cast<double>(worker.weight_bytes()) +
                        static_cast<double>(worker.kv_bytes()) +
                        static_cast<double>(worker.activation_bytes());
  if (registered_bytes <= 0 || needed <= static_cast<double>(registered_bytes))
    return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "the plan gives %s %.0f bytes (weights %d, KV %d, activations %d), its worker registered %d: "
      "%.0f bytes are missing",
      worker.device(), needed, worker.weight_bytes(), worker.kv_bytes(), worker.activation_bytes(),
      registered_bytes, needed - static_cast<double>(registered_bytes)));
}

void FillConfigure(const v1::DeploymentPlan& plan, const v1::Replica& replica, int stage, int rank,
                   v1::ConfigureRequest& request) {
  const v1::PlannedWorker& worker = replica.stages(stage).workers(rank);
  request.set_replica(replica.name());
  request.set_role(replica.role());
  request.set_stage(stage);
  request.set_rank(rank);
  request.set_micro_batches(replica.micro_batches());
  *request.mutable_share() = worker.share();
  if (plan.weight_dtype() != v1::DATA_TYPE_UNSPECIFIED)
    request.set_weight_dtype(plan.weight_dtype());
  if (plan.kv_dtype() != v1::DATA_TYPE_UNSPECIFIED) request.set_kv_dtype(plan.kv_dtype());
  if (worker.kv_bytes() > 0) {
    request.set_kv_cache_bytes(worker.kv_bytes());
    request.set_kv_cache_bytes_planned(true);
  }
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
