// `tessera plan`: a cluster description in, a deployment plan out.
//
// Thread rule: one call at a time, from main. Reads and writes files; prints nothing.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/plan_file.h"
#include "proto/plan.pb.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/shared/shared_cluster.h"

namespace tessera::deploy {

// Means of a published trace of conversations.
inline constexpr int64_t kUsualPromptTokens = 1155, kUsualOutputTokens = 211;

struct PlanFlags {
  std::string cluster;  // file
  std::string model;    // built-in name, Hugging Face folder, or config.json
  std::string
      workload;  // file: a description, or a trace (.csv, .jsonl); empty: --prompt and --output
  int64_t prompt_tokens = 0;       // 0: kUsualPromptTokens; refused beside a workload, as below
  int64_t output_tokens = 0;       // 0: kUsualOutputTokens
  double requests_per_second = 0;  // beats the workload's
  std::string max_tpot;            // "150 ms"; empty: the workload's, else weighed; "0": any
  std::string max_ttft;            // likewise
  std::string max_end_to_end;      // "20 s"; empty: the workload's; "0": none
  double attainment = 0;           // 0: the workload's
  double arrival_variation = 0;    // 0: the workload's
  std::string goal;                // empty: throughput, weighed by latency
  std::string prefer;              // latency, balanced, throughput; empty: balanced
  std::string weight_dtype;        // empty: as stored
  std::string kv_dtype;
  std::string runtime_reserve;  // "1 GiB"; empty: that, or nothing where all devices are CPUs
  std::string kv_codec_rate = "20 GB/s";
  std::string weight_read = "2 GB/s";  // of a machine's disk
  std::string weight_network;          // "10 Gbit/s"; empty: machines have the weights
  std::string speculate = "off";       // off, auto, ngram, mtp, or draft:PATH
  int speculate_tokens = 0;            // drafts of a sequence in one step; 0: as many as do best
  double draft_acceptance = 0;         // of a draft whose predecessors stand; 0: estimated
  std::string running;                 // file of the plan that runs now; empty: nothing does
  bool include_unsupported = false;    // plan also for devices that no worker runs on
  std::string layout;  // file of a layout to judge instead of searching; empty: search
  scheduler::PlannerOptions options;
};

// Everything a planner is asked, read from the files that flags name.
struct PlanQuestion {
  scheduler::PlannerInput input;
  scheduler::PlannerOptions options;
};

// Errors of all of these name the file or flag, the reason and the fix.
absl::StatusOr<PlanQuestion> ReadPlanQuestion(const PlanFlags& flags);
absl::StatusOr<v1::DeploymentPlan> PlanFromFiles(const PlanFlags& flags);

// One question for each model: a workload, and a rate, for each, one for all, or none.
absl::StatusOr<std::vector<PlanQuestion>> ReadSharedQuestions(
    const PlanFlags& flags, const std::vector<std::string>& models,
    const std::vector<std::string>& workloads, const std::vector<double>& rates);

// A built-in name, a Hugging Face folder, or a config.json.
absl::StatusOr<v1::Model> ReadPlannedModel(const std::string& name);

// The plan as the files say beside the plan with `changes` (scheduler/planner/advice/what_if) to
// the cluster.
struct WhatIfAnswer {
  std::string text;         // the difference
  PlanQuestion question;    // with the changes
  v1::DeploymentPlan plan;  // its answer
};
absl::StatusOr<WhatIfAnswer> WhatIf(const PlanFlags& flags, const std::string& changes);

// Plans for models that share a cluster: as the files say where `changes` are empty, else with
// these, and the text compares both.
struct SharedAsk {
  std::string changes;        // scheduler/planner/advice/what_if
  bool outlook = true;        // tell other choices too, and what changes would bring
  bool search_again = false;  // that with deals made again, however long it takes
};
struct SharedAnswer {
  std::string text;
  v1::Cluster cluster;  // that the plans are for
  scheduler::SharedPlans plans;
};
absl::StatusOr<SharedAnswer> PlanSharedModels(const std::vector<PlanQuestion>& questions,
                                              const SharedAsk& ask);

}  // namespace tessera::deploy
