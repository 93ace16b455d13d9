#include "coordinator/spare/kept_cluster.h"

#include <set>
#include <utility>

#include "proto/planning.pb.h"

namespace tessera::coordinator {
namespace {

constexpr char kPlans[] = "plans", kFlags[] = "flags", kWorkers[] = "workers/";

}  // namespace

std::map<std::string, std::string> KeptValues(const PlanSet& plans, const std::string& flags,
                                              const std::map<std::string, WorkerRecord>& workers) {
  std::map<std::string, std::string> values;
  if (plans.names_devices) {
    v1::ApplyPlanRequest kept;
    kept.mutable_plans()->Add(plans.plans.begin(), plans.plans.end());
    values[kPlans] = kept.SerializeAsString();
    values[kFlags] = flags;
  }
  const std::set<std::string> planned = DevicesOf(plans);
  for (const auto& [name, worker] : workers) {
    // The next leader waits for one that the plan names, then plans without it.
    if (worker.state == v1::WORKER_STATE_LOST && !planned.contains(name)) continue;
    v1::RegisterRequest kept = worker.registration;
    if (worker.state == v1::WORKER_STATE_READY) kept.set_plan_epoch(worker.plan_epoch);
    values[kWorkers + name] = kept.SerializeAsString();
  }
  return values;
}

KeptCluster ReadKeptValues(const std::map<std::string, std::string>& values) {
  KeptCluster kept;
  for (const auto& [key, value] : values) {
    v1::ApplyPlanRequest plans;
    v1::RegisterRequest worker;
    if (key == kFlags) {
      kept.flags = value;
    } else if (key == kPlans && plans.ParseFromString(value)) {
      kept.plans.assign(plans.plans().begin(), plans.plans().end());
    } else if (key.starts_with(kWorkers) && worker.ParseFromString(value)) {
      kept.workers.push_back(std::move(worker));
    }
  }
  return kept;
}

}  // namespace tessera::coordinator
