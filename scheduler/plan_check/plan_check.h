// The independent validator of plans: whoever loads a plan runs it, and it shares no code with
// whatever wrote the plan (not even the reading of cluster descriptions). Thread rule: pure
// functions. Errors: INVALID_ARGUMENT naming replica, stage, device or link, and the reason.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"

namespace tessera::scheduler {

// The plan by itself: names are unique, a device is used once, every replica's stages cover every
// layer exactly once and in order, and the ranks of every stage cover all query heads, ffn columns,
// vocabulary rows and experts exactly once and all kv heads their query heads need; the first stage
// holds the embedding, the last the head; routing names replicas with fitting roles and codecs of
// KV that there are, and its shares sum to at most 1. Where figures are given: the weights of every
// worker are those of its ranges, its KV pool holds the replica's KV capacity, all of it fits what
// the device offers; KV holds the longest sequence and, by Little's law, what is in flight at the
// predicted latency, with headroom; no replica is sent more than it serves, the whole of the
// promised rate is sent somewhere; tokens follow from requests, the gap from value and bound, and
// what is proved has none; what decodes at once may, and latencies are given, but a TTFT where by
// the plan's formula waits have no end. Nothing of the message is trusted.
absl::Status CheckPlan(const v1::DeploymentPlan& plan);

// CheckPlan, and the plan against the cluster it is for: devices exist, are of the kind named,
// and have the memory; machines that exchange anything are joined; no link or uplink carries more
// than its bandwidth, and loads are as stated; USD follow from prices; no prediction beats the
// peaks of the devices (weights read at full memory bandwidth once per token, or once for those
// that a step gives with drafts, two operations per parameter and token).
absl::Status CheckPlanOn(const v1::DeploymentPlan& plan, const v1::Cluster& cluster,
                         const v1::DeviceCatalogue& catalogue);

// CheckPlan of a plan that runs, and its replicas against the cluster as it is now: devices are of
// the kind named and have the memory, no prediction beats their peaks. Machines and links may have
// come, gone and changed since it was made: a replica of which a device is gone is not looked at.
absl::Status CheckRunningPlan(const v1::DeploymentPlan& plan, const v1::Cluster& cluster,
                              const v1::DeviceCatalogue& catalogue);

// The plan is for this model: InvalidArgument naming the first field of the shape that differs. The
// name may differ (a folder and a built-in name can mean the same model).
absl::Status CheckPlanIsFor(const v1::DeploymentPlan& plan, const v1::Model& model);

// Warns of the replica that decodes with the least KV where a request of so many tokens, prompt and
// answer, does not fit: the plan serves, but not all that may be asked for. Empty: all such
// replicas hold it, or do not say how much KV they have.
std::string ShortKvWarning(const v1::DeploymentPlan& plan, int64_t longest_request_tokens);

}  // namespace tessera::scheduler
