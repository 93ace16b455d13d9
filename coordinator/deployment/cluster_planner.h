// The planner behind the source of plans that `--cluster` asks for: reads the files once, waits for
// the workers that are described, then plans for those that are there; asked again later, for those
// at once.
//
// Thread rule: the returned function is for one thread at a time. What it waits for, or why there
// is no plan, is its error; it logs that once per change. The same workers are planned for once:
// asked again it answers UNAVAILABLE without a message.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/deployment/plan_source.h"
#include "coordinator/deployment/registered_cluster.h"
#include "coordinator/flow/draft_counts.h"
#include "proto/worker.pb.h"

namespace tessera::coordinator {

// The drafts that workers are asked to try, as a plan counts on them: without a source none.
absl::StatusOr<v1::DraftTerms> DraftsOfWorkers(const v1::ConfigureRequest& configure);

// What is planned from. For the types of weights and KV that `configure` names. Errors name the
// file and the reason. `workload_file`, a description or a trace, may be empty: prompts of 1155 and
// answers of 211 tokens, the means of the Azure conversation trace. `split`: every replica only
// prefills or only decodes; false: none does. `prefer`: latency, balanced or throughput; empty:
// balanced.
absl::StatusOr<ClusterQuestion> ReadPlanAtStart(const std::string& cluster_file,
                                                const std::string& workload_file,
                                                double wait_seconds, std::optional<bool> split,
                                                const std::string& prefer,
                                                const v1::ConfigureRequest& configure);

// The planner for the model that `configure` names, from what ReadPlanAtStart reads, and from the
// drafts that were tried by then where `draft_counts` is given.
absl::StatusOr<PlanForWorkers> PlannerOfCluster(
    const std::string& cluster_file, const std::string& workload_file, double wait_seconds,
    std::optional<bool> split, const std::string& prefer, const v1::ConfigureRequest& configure,
    std::function<double()> now_seconds, ReadDraftCounts draft_counts = nullptr);

}  // namespace tessera::coordinator
