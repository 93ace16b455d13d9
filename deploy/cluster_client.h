// Asks a coordinator what its cluster looks like, and shows it to people.
// Thread rule: pure functions but for FetchCluster and MeasureCluster, which block up to their
// timeout.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/coordinator.pb.h"

namespace tessera::deploy {

// `address`: host:port of the coordinator's gRPC. `admin_key` may be empty.
absl::StatusOr<v1::GetClusterReply> FetchCluster(const std::string& address,
                                                 const std::string& admin_key,
                                                 double timeout_seconds);

// Has the coordinator measure its workers and links. FAILED_PRECONDITION while requests are in
// flight, unless `while_serving`. For a coordinator that FetchCluster reached.
absl::StatusOr<v1::ProfileClusterReply> MeasureCluster(const std::string& address,
                                                       const std::string& admin_key,
                                                       bool while_serving, double timeout_seconds);

// The tables of `tessera status`: workers, their links, replicas. PLANNED is what the plan says of
// the column before it.
std::string ShowCluster(const v1::GetClusterReply& cluster);
// A table of stages: which layers on which workers; then why.
std::string ShowPlan(const v1::GetClusterReply& cluster);
std::string ClusterJson(const v1::GetClusterReply& cluster);

}  // namespace tessera::deploy
