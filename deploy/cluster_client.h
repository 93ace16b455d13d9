// Asks a coordinator what its cluster looks like, and shows it to people.
// Thread rule: pure functions but for ReadDoor, which reads files, and FetchCluster,
// FetchSuggestion, MeasureCluster, AskToCheck and ApplyPlan, which block up to their timeout.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/coordinator.pb.h"
#include "proto/planning.pb.h"
#include "third_party/cli11/flags.h"
#include "tls/client_tls.h"

namespace tessera::deploy {

// As flags say how to reach a coordinator: --coordinator, --admin-key-file, --tls-*.
struct CoordinatorFlags {
  std::string address = "127.0.0.1:8001";
  std::string admin_key_file;
  ClientTlsFiles tls;
};

// `flags` must outlive the parsing.
void AddCoordinatorFlags(const Command& command, CoordinatorFlags& flags);

// What the files say.
struct CoordinatorDoor {
  std::string address;    // host:port of its gRPC
  std::string admin_key;  // may be empty
  ClientTls tls = {};
  bool has_cluster_tls = false;  // `tls` is of --cluster-tls, or goes with it
};

// Without --admin-key-file the key is what the coordinator made for this user's programs
// (proto/run_folder.h), or none. INVALID_ARGUMENT names the flag.
absl::StatusOr<CoordinatorDoor> ReadDoor(const CoordinatorFlags& flags);

absl::StatusOr<v1::GetClusterReply> FetchCluster(const CoordinatorDoor& door,
                                                 double timeout_seconds);

// What the coordinator suggests instead of the plan in force, a line for people; empty: nothing, or
// it does not say. For a coordinator that FetchCluster reached.
std::string FetchSuggestion(const CoordinatorDoor& door, double timeout_seconds);

// Has the coordinator measure its workers and links. FAILED_PRECONDITION while requests are in
// flight, unless `while_serving`. For a coordinator that FetchCluster reached.
absl::StatusOr<v1::ProfileClusterReply> MeasureCluster(const CoordinatorDoor& door,
                                                       bool while_serving, double timeout_seconds);

// What a worker that has not been started would meet. UNAUTHENTICATED: the token is missing or
// wrong; RESOURCE_EXHAUSTED: another one is being checked; UNIMPLEMENTED: it is of an older build.
absl::StatusOr<v1::CheckWorkerReply> AskToCheck(const CoordinatorDoor& door,
                                                const std::string& cluster_token,
                                                const v1::CheckWorkerRequest& request,
                                                double timeout_seconds);

// Has the coordinator put plans in force, at most one for each model that it serves, and waits
// until they serve. Errors are the coordinator's. For a coordinator that FetchCluster reached.
absl::StatusOr<v1::ApplyPlanReply> ApplyPlan(const CoordinatorDoor& door,
                                             std::vector<v1::DeploymentPlan> plans,
                                             double timeout_seconds);
// What became of each replica, as a table.
std::string ShowApplied(const v1::ApplyPlanReply& applied);

// The tables of `tessera status`: workers, their links, replicas. PLANNED is what the plan says of
// the column before it.
std::string ShowCluster(const v1::GetClusterReply& cluster);
// A table of stages: which layers on which workers; then why.
std::string ShowPlan(const v1::GetClusterReply& cluster);
std::string ClusterJson(const v1::GetClusterReply& cluster);

}  // namespace tessera::deploy
