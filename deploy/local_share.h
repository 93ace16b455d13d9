// How the cores and the memory of this machine are divided between local workers.
// Thread rule: pure functions, but for the two that say what they read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::deploy {

// More workers than this on each core would only wait for one another.
inline constexpr int kMaxWorkersPerCore = 8;

// Cores for each of `workers`: disjoint, consecutive shares of `cores`, as even as they can be,
// where every worker can have one; earlier workers get what is over. Where there are more workers
// than cores, each gets one core, in turn: a worker of one core does not spin. InvalidArgument for
// fewer than one worker, or more than kMaxWorkersPerCore for each core.
absl::StatusOr<std::vector<std::vector<int>>> SplitCores(std::span<const int> cores, int workers);

// What a worker of `tessera up --devices` needs of the cores.
struct CoreNeed {
  bool computes = true;     // its device is made of them
  std::vector<int> near{};  // else those of its GPU's NUMA node; empty: any
};

// Cores for each worker. A worker that only drives a GPU gets cores near it: at most four, and not
// more than its part of one half of all, where others compute on cores; else an even part of all.
// Those that compute share what is left, as in SplitCores; where nothing is left, all share all.
absl::StatusOr<std::vector<std::vector<int>>> SplitCoresByNeed(std::span<const int> cores,
                                                               std::span<const CoreNeed> needs);

// Bytes for each worker: what it asks for (0: an even part), all of them less in proportion where
// they ask for more than nine tenths of `available_bytes`; the rest is left to the coordinator and
// the system. `available_bytes` 0, not known: what it asks for.
std::vector<int64_t> SplitMemory(int64_t available_bytes, std::span<const int64_t> asked_bytes);

// Bytes a process here may still take, by the rule that the workers follow too
// (third_party/linux/cpu_share). `root` is "" but in tests, which plant a tree.
int64_t AvailableMemoryBytes(const std::string& root);

// Cores this process may run on, no more than the CPU quota keeps busy, by the same rule.
std::vector<int> AllowedCores(const std::string& root);

}  // namespace tessera::deploy
