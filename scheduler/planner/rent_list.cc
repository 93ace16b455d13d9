#include "scheduler/planner/rent_list.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_format.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

std::set<std::string> MachinesOf(const v1::DeploymentPlan& plan) {
  std::set<std::string> machines;
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers())
        machines.insert(worker.device().substr(0, worker.device().rfind('/')));
    }
  }
  return machines;
}

}  // namespace

std::string RentLine(const v1::Cluster& cluster, const v1::DeploymentPlan& plan) {
  const bool market = std::any_of(cluster.machines().begin(), cluster.machines().end(),
                                  [](const v1::Machine& m) { return m.available() > 1; });
  if (!market) return "";
  const std::set<std::string> used = MachinesOf(plan);
  std::string list;
  double usd = 0;
  bool priced = true;
  for (const v1::Machine& machine : cluster.machines()) {
    const int offered = std::max(1, machine.available());
    int count = 0;
    for (int copy = 1; copy <= offered; ++copy) {
      const std::string name = offered > 1 ? StrCat(machine.name(), ".", copy) : machine.name();
      count += used.contains(name) ? 1 : 0;
    }
    if (count == 0) continue;
    list += StrCat(list.empty() ? "" : ", ", count, " of the ", offered, " ", machine.name());
    usd += count * machine.price_usd_per_hour();
    priced = priced && machine.price_usd_per_hour() > 0;
  }
  return StrCat("rent ", list,
                priced ? absl::StrFormat(": %.2f USD/h for whole machines", usd) : std::string());
}

}  // namespace tessera::scheduler
