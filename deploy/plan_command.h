// `tessera plan`: a cluster description in, a deployment plan out.
//
// Thread rule: one call at a time, from main. Reads and writes files; prints nothing.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/plan.pb.h"
#include "scheduler/planner.h"

namespace tessera::deploy {

struct PlanFlags {
  std::string cluster;  // file
  std::string model;    // built-in name, Hugging Face folder, or config.json
  std::string
      workload;  // file: a description, or a trace (.csv, .jsonl); empty: --prompt and --output
  double prompt_tokens = 1155;
  double output_tokens = 211;
  double requests_per_second = 0;  // beats the workload's
  std::string max_tpot;            // "150 ms"; empty: the workload's
  std::string goal = "throughput";
  std::string weight_dtype;  // empty: as stored
  std::string kv_dtype;
  std::string runtime_reserve = "1 GiB";
  scheduler::PlannerOptions options;
};

// Errors name the file or flag, the reason and the fix.
absl::StatusOr<v1::DeploymentPlan> PlanFromFiles(const PlanFlags& flags);

// plan.json: proto3 JSON with field names as in plan.proto. The same plan gives the same bytes.
absl::StatusOr<std::string> PlanJson(const v1::DeploymentPlan& plan);
absl::StatusOr<v1::DeploymentPlan> ReadPlanFile(const std::string& path);

}  // namespace tessera::deploy
