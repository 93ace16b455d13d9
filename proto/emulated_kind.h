// Kinds of devices that compute nothing: workers of a rehearsal register as "emulated:RTX4090", and
// a coordinator takes them only if it was started for a rehearsal. Thread rule: pure functions.
#pragma once

#include <string_view>

namespace tessera {

// Before the name of the kind that stands in the catalogue or the cluster's description.
inline constexpr std::string_view kEmulatedKind = "emulated:";

constexpr bool IsEmulatedKind(std::string_view kind) { return kind.starts_with(kEmulatedKind); }

// What workers and the coordinator of a rehearsal have instead of a checkpoint's fingerprint.
inline constexpr std::string_view kRehearsalFingerprint = "rehearsal";
// Before the model's name, in every answer and in status.
inline constexpr std::string_view kRehearsedModel = "rehearsal:";

// Files of a rehearsal's folder.
inline constexpr std::string_view kRehearsedModelFile = "model.json";      // v1::Model
inline constexpr std::string_view kRehearsedPlanFile = "plan.json";        // v1::DeploymentPlan
inline constexpr std::string_view kRehearsedClusterFile = "cluster.json";  // v1::Cluster

}  // namespace tessera
