// The search called "hexgen2": graph partition, then swaps guided by a maximum flow.
//
// Source: HexGen-2 (ICLR 2025). 1. Devices are nodes, links edges: spectral partition, refined by
// Kernighan and Lin, into groups of like memory with strong links inside. 2. Groups are coarsened
// to nodes and get roles, such that strong links lie between prefilling and decoding ones. 3. Every
// group is laid out for its role, prefilling ones for least latency, decoding ones for most
// throughput; the maximum flow from prefilling over KV links to decoding groups
// is the rate. 4. Devices move or swap between saturated and idle groups, and roles of idle ones
// flip, until nothing gains. How many groups there are is tried; the most promising starts are
// refined. With allow_split off, or where only one group holds the model, groups do both. Shared
// uplinks are left out of the flow and counted in the end, by Assemble. Deterministic; no random
// numbers. Errors: ResourceExhausted where nothing serves.
#pragma once

#include "scheduler/search/layout/device_groups.h"

namespace tessera::scheduler {

struct PartitionFlowOptions {
  double size_tolerance = 0.1;  // ours: memory of parts while pairs are swapped
  int starts = 3;               // ours: numbers of groups that are refined
  int most_evaluations = 4000;  // ours: candidates judged, over all starts
  int most_layouts = 1000;      // ours: layouts of unlike groups, which is where time goes
  int start_growth = 4;         // ours: starts of n groups are followed by one of n + n / this
  // The paper's: prefilling groups have the layout of least latency.
  GroupLayoutOptions layouts = {.prefill_by_latency = true};
};

absl::StatusOr<Placement> SearchPartitionFlow(const PlacementProblem& problem,
                                              const PartitionFlowOptions& options = {});

}  // namespace tessera::scheduler
