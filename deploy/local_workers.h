// The workers of one machine that a cluster description or a plan names, for `tessera up` to start.
//
// Thread rule: reads the file, otherwise pure. InvalidArgument names the file and the reason; a
// file of several machines is refused with what to start instead.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/device_names.h"

namespace tessera::deploy {

struct LocalWorker {
  std::string name;          // MACHINE/INDEX
  int64_t memory_bytes = 0;  // 0: an even part of what there is; of a GPU, its worker's choice
  std::string device = std::string(kCpuDevice);  // for tessera-worker --device
  std::vector<int> near_cores = {};  // of a GPU's NUMA node; empty: not known, or no GPU
  std::string kind = {};             // of device, as the description or the plan names it
  bool is_gpu = false;               // that kind, as far as it is known
  bool is_supported = true;          // workers run on that kind
};

// One for each device. Memory is what the description itself gives the device:
// the catalogue's is that of no machine in particular.
absl::StatusOr<std::vector<LocalWorker>> WorkersOfCluster(const std::string& file);

// One for each device that the plan uses, in the plan's order. Memory is what the plan relies on.
absl::StatusOr<std::vector<LocalWorker>> WorkersOfPlan(const std::string& file);

}  // namespace tessera::deploy
