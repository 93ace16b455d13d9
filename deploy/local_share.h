// How the cores and the memory of this machine are divided between local workers.
// Thread rule: pure functions, but for the two that say what they read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::deploy {

// `workers` disjoint, consecutive shares of `cores`, as even as they can be; earlier ones get what
// is over. InvalidArgument when there are fewer cores than workers.
absl::StatusOr<std::vector<std::vector<int>>> SplitCores(std::span<const int> cores, int workers);

// Bytes a process here may still take, by the rule that the workers follow too
// (third_party/linux/cpu_share). `root` is "" but in tests, which plant a tree.
int64_t AvailableMemoryBytes(const std::string& root);

// Cores this process may run on, no more than the CPU quota keeps busy, by the same rule.
std::vector<int> AllowedCores(const std::string& root);

}  // namespace tessera::deploy
