// The part of a cluster that workers run on.
//
// Kinds below NVIDIA's compute capability 7.5, and those that are there to plan with alone, have no
// worker; a kind that says nothing of it counts as one that has. Thread rule: pure function.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"
#include "scheduler/input/cluster_graph.h"

namespace tessera::scheduler {

struct SupportedPart {
  ClusterGraph graph;                   // all machines, with the supported devices alone
  std::map<std::string, int> left_out;  // devices by kind
};

// InvalidArgument naming the kinds, and `flag` as what includes them, where no device is left.
absl::StatusOr<SupportedPart> SupportedDevices(ClusterGraph graph, const v1::Cluster& cluster,
                                               const v1::DeviceCatalogue& catalogue,
                                               std::string_view file, std::string_view flag);

// "2 V100-32 and 1 P40".
std::string CountedKinds(const std::map<std::string, int>& devices);

}  // namespace tessera::scheduler
