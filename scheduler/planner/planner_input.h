// What a plan is made from: the descriptions, and how to plan. Thread rule: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/cluster.pb.h"
#include "proto/kv_blocks.h"
#include "proto/model.pb.h"
#include "proto/plan.pb.h"
#include "proto/workload.pb.h"
#include "scheduler/batcher.h"
#include "scheduler/cost/cost_model.h"
#include "scheduler/input/workload_samples.h"
#include "scheduler/planner/preference.h"
#include "scheduler/planner/report/move_cost.h"
#include "scheduler/planner/spot.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// Figures of the workload that an option gave in place of its file, for the assumptions.
struct WorkloadOptions {
  bool lengths = false, rate = false, arrival_variation = false;
  bool max_tpot = false, max_ttft = false, max_end_to_end = false, attainment = false;
};

struct PlannerInput {
  v1::Cluster cluster;
  v1::DeviceCatalogue catalogue;
  v1::Model model;
  v1::Workload workload;
  std::vector<TraceRequest> trace;       // where the workload names one
  std::string cluster_file = "cluster";  // for messages
  std::string workload_file = "workload";
  bool by_request = false;  // over the network, where there are no flags
  WorkloadOptions workload_options;
  std::optional<v1::DeploymentPlan> running;  // what the move starts from; empty: nothing runs
};

struct PlannerOptions {
  Goal goal = Goal::kThroughput;
  std::string search = "best";
  std::vector<std::string> search_options;  // constants of the search, such as "cost.gap=0.01"
  v1::DataType weight_dtype = v1::DATA_TYPE_UNSPECIFIED;  // as stored
  v1::DataType kv_dtype = v1::DATA_TYPE_UNSPECIFIED;      // 16 bits
  double utilisation = 0.9;                               // of a device's memory
  double runtime_reserve_bytes = 1073741824.0;
  double kv_headroom = 0.1;
  double kv_codec_bytes_per_second =
      20e9;  // of raw KV, encoding and decoding; at most the measured
  KvCodec strongest_kv_codec = KvCodec::kInt8;
  int64_t max_step_tokens = MemoryOptions().max_step_tokens;
  double max_sequences = static_cast<double>(BatchLimits().max_sequences);  // per replica
  // Longest sequence; 0: what the model supports. Where it is given, requests may ask for so many:
  // replicas that decode have KV for one, in whole blocks, if any plan does.
  int64_t context_tokens = 0;
  int64_t block_tokens = kDefaultBlockTokens;  // of KV
  v1::DraftTerms drafts;                       // that steps try (ChooseDrafts); empty: none
  uint64_t seed = 0;                           // of searches that draw; 0: their own
  bool allow_split = true;
  // Leave out devices that no worker runs on: what is planned is to be started.
  bool supported_only = false;
  bool require_split = false;  // the best plan all of whose replicas only prefill or only decode
  bool survive_machine_loss = false;  // what counts is what the loss of the worst machine leaves
  MoveOptions move;
  SpotOptions spot;
  Preference preference;  // for throughput; none: the most, whatever its latencies and stages
  bool prove = false;     // look for a bound however long it takes (up to eight devices)
  Search
      given_search;  // used instead of the one named by `search`: for layouts that a person wrote
  // Whether the plans that the search kept are simulated, and the one that does better there is
  // taken; not given: for plans that use up to 64 devices, and up to 1,000 where a plan splits
  // prefill and decode, as what such plans promise is what simulations refute most.
  std::optional<bool> simulate;
  // Requests with which the rate is found that simulation attains, for each of three seeds; 0: not.
  int64_t attain_requests = 0;
  SearchWatch watch;
};

}  // namespace tessera::scheduler
