// Plans for the workers that really registered, with the links and sites that a description gives
// them (`tessera-coordinator --cluster`).
//
// Thread rule: pure functions.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/deployment/plan_terms.h"
#include "coordinator/deployment/worker_pool.h"
#include "proto/cluster.pb.h"
#include "proto/kv_blocks.h"
#include "proto/plan.pb.h"
#include "proto/workload.pb.h"
#include "scheduler/input/workload_samples.h"
#include "scheduler/planner/planner_input.h"

namespace tessera::coordinator {

struct PlanAtStart {
  v1::Cluster cluster;
  v1::Workload workload;
  std::vector<scheduler::TraceRequest> trace;  // where the workload is one
  std::string cluster_file = "cluster";
  std::string workload_file = "workload";
  v1::DataType weight_dtype = v1::DATA_TYPE_UNSPECIFIED;  // that flags ask for; or as stored
  v1::DataType kv_dtype = v1::DATA_TYPE_UNSPECIFIED;      // that flags ask for
  // Rows of a step that flags ask for, or that are usual; buffers are charged for so many.
  int64_t max_step_tokens = kDefaultBatchedTokens;
  int64_t max_sequences = 0;   // that flags ask for; 0: the planner's
  int64_t context_tokens = 0;  // of the longest request that is served; 0: the model's
  int64_t block_tokens = kDefaultBlockTokens;  // of KV
  std::optional<bool> split;  // every replica only prefills or only decodes; false: none does
  std::string prefer;         // latency, balanced or throughput; empty: balanced
  double wait_seconds = 30;   // for devices that are described and have not registered
  scheduler::SearchWatch watch;  // of the search
};

// Asked in place of the planner, with what it would be given; its answer is passed on as it is.
// `names`: who the input's devices are.
using RegisteredPlanner = std::function<absl::StatusOr<v1::DeploymentPlan>(
    const scheduler::PlannerInput&, const scheduler::PlannerOptions&,
    const std::map<std::string, std::string>& names)>;

// Devices of the description ("machine/index") that no live worker has registered as, without those
// of kinds that no worker runs on.
std::vector<std::string> MissingDevices(const v1::Cluster& cluster,
                                        const std::map<std::string, WorkerRecord>& workers);

// The planner's plan, with replicas of the roles that `split` allows, of any stages and widths.
// Memory and memory bandwidth are those that workers report; memory is at most what the description
// itself gives a device, which the assumptions say where it binds (the catalogue limits nothing).
// Where all workers are on CPUs, no memory is held back for a runtime. A worker that the description
// does not know is named in the plan's notes. InvalidArgument for a bad description,
// ResourceExhausted where nothing fits.
absl::StatusOr<v1::DeploymentPlan> PlanForRegistered(
    const PlanAtStart& start, const v1::Model& model,
    const std::map<std::string, WorkerRecord>& workers, const RegisteredPlanner& other = nullptr);

}  // namespace tessera::coordinator
