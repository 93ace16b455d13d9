// Stages over unlike devices of a machine, or over machines that are joined well: how their blocks
// are cut, and the replicas that may be made of them.
//
// Problem: a layer is as fast as its slowest rank, and a rank holds no more than its memory. Idea:
// steps that decode want parts by memory bandwidth, prompts by FLOPs; a few points between the two
// and parts by memory are tried, each lowered where a rank's memory is short, and whoever judges
// replicas takes the best. Thread rule: pure functions, deterministic. Cost: some dozens of
// replicas of a machine.
#pragma once

#include <span>
#include <vector>

#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// Machines whose devices may share a stage are joined at least so fast: 25 Gbit/s.
inline constexpr double kMinMixedBytesPerSecond = 25e9 / 8;
inline constexpr int kMaxMixedWidth = 8;

// Cuts of a stage that holds `part` of the layers between these ranks, by which each has room for
// its part of the weights and of the KV of `kv_tokens` tokens: unlike ones, each with fractions
// that sum to 1, parts by memory bandwidth first. Empty: none has room.
std::vector<std::vector<double>> MixedFractions(const ModelShape& model,
                                                std::span<const DeviceSpec* const> ranks,
                                                const MemoryOptions& memory, double kv_tokens,
                                                double part = 1);

// Replicas of one mixed stage each, of role both, without rates: for every machine with unlike
// devices its sets of at most kMaxMixedWidth, cut in every way; and whole machines of a group with
// others like them. Machines that are alike are looked at once.
std::vector<PlacedReplica> MixedReplicas(const PlacementProblem& problem);

}  // namespace tessera::scheduler
