// `tessera rehearse`: a plan in; the same plan at work on this machine, with devices that compute
// nothing and take their time from the cost model, and what it promised beside what came of it,
// out.
//
// Thread rule: one call at a time, from main. Starts processes, which end with it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace tessera {
class Command;
}

namespace tessera::deploy {

struct RehearseFlags {
  std::string plan;                // plan.json
  std::string cluster;             // its description; empty: as far as the plan tells
  std::string workload;            // description or trace; empty: the lengths that the plan is for
  double requests_per_second = 0;  // 0: the workload's, else 85 % of what the plan predicts
  double minutes = 5;              // of the workload's time
  double speed = 1;                // workload's seconds that pass in one second
  uint64_t seed = 1;
  std::string kill;     // "MACHINE" or "MACHINE@SECONDS", of the workload's time; empty: none
  std::string bin_dir;  // empty: beside this program
  std::string log_dir;  // empty: a new folder under the system's temporary one
  bool json = false;
};

void AddRehearse(const Command& app, RehearseFlags* flags);

// The report, for people, or as JSON. Errors name the file or flag, the reason and the fix.
absl::StatusOr<std::string> Rehearse(const RehearseFlags& flags);

}  // namespace tessera::deploy
