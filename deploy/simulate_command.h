// `tessera simulate`: a plan, a cluster and a workload in; what users of that deployment would see
// out.
//
// Thread rule: one call at a time, from main. Reads and writes files; prints nothing.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace CLI {
class App;
}

namespace tessera::deploy {

struct SimulateFlags {
  std::string plan;      // plan.json
  std::string cluster;   // its description
  std::string model;     // empty: the plan's
  std::string workload;  // description, trace, or empty: prompt and output below
  int64_t prompt_tokens = 1155;
  int64_t output_tokens = 211;
  double requests_per_second = 0;  // 0: the workload's, else 85 % of what the plan predicts
  int64_t requests = 5000;         // drawn; a trace has its own
  uint64_t seed = 1;
  std::string routing = "router";  // or load, shares, round-robin
  int64_t max_sequences = 0;       // of a replica; 0: the plan's
  int64_t max_batched_tokens = 0;  // of one step; 0: the plan's
  int64_t max_tokens = 0;          // that requests ask for; 0: the longest answer of them all
  std::string max_ttft, max_tpot, max_end_to_end;  // "2 s"; empty: the workload's
  std::vector<std::string> changes;  // "r0 lost 10 s", "r0 back 40 s", "r1 slow 2.5 5 s"
  std::string csv;                   // files to write; empty: none
  std::string rates_csv;
  std::string attainment_svg;
  std::string timeline_svg;
};

void AddSimulate(CLI::App& app, SimulateFlags* flags);

// The summary, for people. Errors name the file or flag, the reason and the fix.
absl::StatusOr<std::string> SimulateFromFiles(const SimulateFlags& flags);

}  // namespace tessera::deploy
