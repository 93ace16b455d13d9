#include "coordinator/deployment/plan_waits.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera::coordinator {
namespace {

// What holds up a replica; the smallest is named first.
enum Rank { kAbsent, kFailed, kBlocked, kLoading, kJoining, kWaiting, kReady };

// The phase of a worker that has loaded and waits for the others; behind ": " whom it does not
// reach.
constexpr char kJoin[] = "join";

struct Hindrance {
  Rank rank = kReady;
  std::string why;
};

Rank LoadingRank(const std::string& phase) {
  if (phase == kJoin) return kJoining;
  return absl::StartsWith(phase, absl::StrCat(kJoin, ": ")) ? kBlocked : kLoading;
}

Hindrance Of(const std::string& device, bool alone,
             const std::map<std::string, WorkerRecord>& workers) {
  std::string absent = WhyAbsent(device, workers);
  if (!absent.empty()) return {kAbsent, std::move(absent)};
  const WorkerRecord& worker = workers.at(device);
  switch (worker.state) {
    case v1::WORKER_STATE_READY: return {};
    case v1::WORKER_STATE_FAILED:
      return {kFailed,
              absl::StrCat("worker ", device, " could not be configured: ", worker.detail)};
    case v1::WORKER_STATE_CONFIGURING:
      return {LoadingRank(worker.detail),
              absl::StrCat("worker ", device, " is being configured: ", worker.detail)};
    default:
      if (!alone && !worker.detail.empty())
        return {kWaiting, absl::StrCat("worker ", device, " waits: ", worker.detail)};
      return {kWaiting, absl::StrCat("worker ", device, " has registered and is configured next")};
  }
}

int Workers(const v1::Replica& replica) {
  int workers = 0;
  for (const v1::Stage& stage : replica.stages()) workers += stage.workers_size();
  return workers;
}

}  // namespace

std::vector<std::string> MissingDevices(const v1::DeploymentPlan& plan,
                                        const std::map<std::string, WorkerRecord>& workers) {
  std::vector<std::string> missing;
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& planned : stage.workers()) {
        const auto found = workers.find(planned.device());
        if (found == workers.end() || found->second.state == v1::WORKER_STATE_LOST)
          missing.push_back(planned.device());
      }
    }
  }
  return missing;
}

std::string DescribeMissing(const v1::DeploymentPlan& plan,
                            const std::map<std::string, WorkerRecord>& workers) {
  const std::vector<std::string> missing = MissingDevices(plan, workers);
  if (missing.empty()) return "";
  std::set<std::string> others;
  for (const auto& [name, worker] : workers) {
    if (worker.state != v1::WORKER_STATE_LOST) others.insert(name);
  }
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& planned : stage.workers()) others.erase(planned.device());
    }
  }
  return absl::StrCat(
      "the plan waits for ", missing.size(),
      " devices without a live worker: ", absl::StrJoin(missing, ", "),
      others.empty() ? "" : "; registered, but not in the plan: ", absl::StrJoin(others, ", "));
}

std::string WhyAbsent(const std::string& device,
                      const std::map<std::string, WorkerRecord>& workers) {
  const auto found = workers.find(device);
  if (found == workers.end()) {
    return absl::StrCat("no worker named ", device, " has registered (tessera-worker --name ",
                        device, ")");
  }
  const WorkerRecord& worker = found->second;
  if (worker.state == v1::WORKER_STATE_LOST)
    return absl::StrCat("worker ", device, " is lost: ", worker.detail);
  return worker.load.draining() ? absl::StrCat("worker ", device, " is draining") : "";
}

std::string WhyNotServing(const v1::Replica& replica,
                          const std::map<std::string, WorkerRecord>& workers) {
  Hindrance first;
  const bool alone = Workers(replica) == 1;
  for (const v1::Stage& stage : replica.stages()) {
    for (const v1::PlannedWorker& planned : stage.workers()) {
      Hindrance hindrance = Of(planned.device(), alone, workers);
      if (hindrance.rank < first.rank) first = std::move(hindrance);
    }
  }
  return first.rank == kReady ? "its leader takes no requests at the moment" : first.why;
}

std::vector<std::string> WhatWaits(const v1::DeploymentPlan& plan, const std::string& why_no_plan,
                                   const std::set<std::string>& ready,
                                   const std::map<std::string, WorkerRecord>& workers) {
  constexpr size_t kMaxNamed = 8;
  std::vector<std::string> all;
  if (!why_no_plan.empty()) all.push_back(why_no_plan);
  std::set<std::string> planned;
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers()) planned.insert(worker.device());
    }
    if (ready.contains(replica.name())) continue;
    all.push_back(absl::StrCat("replica ", replica.name(), ": ", WhyNotServing(replica, workers)));
  }
  for (const auto& [name, worker] : workers) {
    if (worker.state != v1::WORKER_STATE_LOST || planned.contains(name)) continue;
    all.push_back(absl::StrCat("worker ", name, " is lost: ", worker.detail));
  }
  if (all.size() > kMaxNamed) {
    const size_t more = all.size() - kMaxNamed;
    all.resize(kMaxNamed);
    all.push_back(absl::StrCat("and ", more, " more"));
  }
  return all;
}

int64_t KvTokens(const v1::Replica& replica, const std::map<std::string, WorkerRecord>& workers) {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const v1::Stage& stage : replica.stages()) {
    for (const v1::PlannedWorker& planned : stage.workers()) {
      const auto found = workers.find(planned.device());
      if (found == workers.end() || found->second.state != v1::WORKER_STATE_READY) return 0;
      const v1::WorkerReady& ready = found->second.ready;
      least = std::min(least, int64_t{ready.kv_blocks()} * ready.block_tokens());
    }
  }
  return least;
}

}  // namespace tessera::coordinator
