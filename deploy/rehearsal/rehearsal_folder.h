// The folder that coordinator and workers of a rehearsal read: the plan, the cluster, the model's
// shape, and a tokenizer that has words for tokens of any model. No weights.
//
// Thread rule: pure but for the files. Errors name the file and the reason.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"

namespace tessera::deploy {

// Tokens that the tokenizer has words for: those of the 256 bytes, then words; fewer where the
// model has fewer.
inline constexpr int64_t kRehearsedTokens = 4096;
int64_t RehearsedTokens(const v1::Model& model);

absl::Status WriteRehearsalFolder(const std::string& folder, const v1::DeploymentPlan& plan,
                                  const v1::Cluster& cluster);

// The cluster as far as the plan itself tells: its machines with the kinds of their devices, and
// links between machines that the plan names; all others have 25 Gbit/s.
v1::Cluster ClusterOfPlan(const v1::DeploymentPlan& plan);

// "machine" of the device "machine/3", and 3.
std::string MachineOf(const std::string& device);
int IndexOf(const std::string& device);

}  // namespace tessera::deploy
