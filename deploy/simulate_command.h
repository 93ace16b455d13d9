// `tessera simulate`: a plan, a cluster and a workload in; what users of that deployment would see
// out.
//
// Thread rule: one call at a time, from main. Reads and writes files; prints nothing.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera {
class Command;
}

namespace tessera::deploy {

struct SimulateFlags {
  std::string plan;           // plan.json
  std::string cluster;        // its description
  std::string model;          // empty: the plan's
  std::string workload;       // description, trace, or empty: prompt and output below
  int64_t prompt_tokens = 0;  // as PlanFlags, like the next
  int64_t output_tokens = 0;
  double requests_per_second = 0;  // 0: the workload's, else 85 % of what the plan predicts
  // Drawn; 0: 5000 to 60,000, as many as it takes to tell what is sustained, of workflows 500. A
  // trace has its own.
  int64_t requests = 0;
  uint64_t seed = 1;
  // router, load, shares, round-robin; of workflows tuned, round-robin. Empty: the first of them.
  std::string routing;
  int64_t max_sequences = 0;       // of a replica; 0: the plan's
  int64_t max_batched_tokens = 0;  // of one step; 0: the plan's
  int64_t max_tokens = 0;          // of an answer, which ends there; 0: the longest of them all
  std::string max_ttft, max_tpot, max_end_to_end;  // "2 s"; empty: the workload's
  std::string cost_table = "model";                // or "distserve:13B-TP1", ...
  std::vector<std::string>
      replans;  // "next.json at 60 s", "next.json after r0 lost 5 s", "new ..."
  std::string weight_read = "2 GB/s";  // of a machine's disk, for replans
  std::string weight_network;          // "10 Gbit/s"; empty: machines have the weights
  bool move_keeps_weights = false;
  std::string workflows;       // file, or "generated"; empty: requests come by themselves
  std::string workflows_csv;   // a line per workflow; empty: none
  std::vector<double> alphas;  // that tuning tries; empty: TuningOptions'
  int64_t tuning_window = 150;
  int64_t tuning_every = 50;
  std::vector<std::string> changes;  // "r0 lost 10 s", "r0 back 40 s", "r1 slow 2.5 5 s"
  std::string csv;                   // files to write; empty: none
  std::string rates_csv;
  std::string attainment_svg;
  std::string timeline_svg;
};

void AddSimulate(const Command& app, SimulateFlags* flags);

// The summary, for people. Errors name the file or flag, the reason and the fix.
absl::StatusOr<std::string> SimulateFromFiles(const SimulateFlags& flags);

}  // namespace tessera::deploy
