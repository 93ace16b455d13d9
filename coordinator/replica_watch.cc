#include "coordinator/replica_watch.h"

#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/deployment/plan_waits.h"
#include "third_party/spdlog/log.h"

namespace tessera::coordinator {

void ReplicaWatch::Watch(double now_seconds) {
  const std::shared_ptr<const v1::DeploymentPlan> plan = deployment_.joined_plan();
  pool_.Refresh(&workers_);
  const ProgressWatch::Changes changes =
      progress_.Update(JoinProgress(*plan, workers_.workers, Activity()), now_seconds);
  for (const Stall& stall : changes.stalled) Logger("coordinator").error("{}", Describe(stall));
  for (const std::string& replica : changes.moving)
    Logger("coordinator").info("replica {} runs steps again", replica);
  WatchDevices(DescribeMissing(*plan, workers_.workers));
}

void ReplicaWatch::WatchDevices(std::string missing) {
  if (missing == missing_devices_) return;
  missing_devices_ = std::move(missing);
  if (missing_devices_.empty()) {
    Logger("coordinator").info("all devices of the plan have live workers");
  } else {
    Logger("coordinator").warn("{}", missing_devices_);
  }
}

absl::Status ReplicaWatch::Readiness() const {
  int ready = 0;
  for (const auto& host : hosts_) ready += host->flow().ready_replicas();
  if (ready == 0) {
    const std::vector<std::string> waiting = Waiting();
    return absl::UnavailableError(absl::StrCat(
        "no replica is ready yet", waiting.empty() ? "" : ": ", absl::StrJoin(waiting, "; ")));
  }
  const std::vector<Stall> stalled = progress_.stalled();
  if (stalled.size() < static_cast<size_t>(ready)) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("every replica is stalled: ", Describe(stalled.front())));
}

std::vector<std::string> ReplicaWatch::Stalled() const {
  std::vector<std::string> all;
  for (const Stall& stall : progress_.stalled()) all.push_back(Describe(stall));
  return all;
}

std::vector<std::string> ReplicaWatch::Waiting() const {
  std::set<std::string> ready;
  for (const ReplicaActivity& activity : Activity()) {
    if (activity.ready) ready.insert(activity.replica);
  }
  return WhatWaits(deployment_.plan().first, deployment_.why_no_plan(), ready, pool_.Snapshot());
}

int64_t ReplicaWatch::requests_in_flight() const {
  int64_t requests = 0;
  for (const auto& host : hosts_) requests += host->flow().requests_in_flight();
  return requests;
}

std::vector<ReplicaActivity> ReplicaWatch::Activity() const {
  std::vector<ReplicaActivity> all;
  for (const auto& host : hosts_) {
    std::vector<ReplicaActivity> own = host->flow().activity();
    std::move(own.begin(), own.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace tessera::coordinator
