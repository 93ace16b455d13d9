#include "scheduler/planner/report/rent_list.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_format.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

using CountsByKind = std::map<std::string, int>;

// Devices that the plan uses, by machine.
std::map<std::string, CountsByKind> UsedOf(const v1::DeploymentPlan& plan) {
  std::map<std::string, CountsByKind> used;
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers())
        ++used[worker.device().substr(0, worker.device().rfind('/'))][worker.kind()];
    }
  }
  return used;
}

int DevicesIn(const v1::Machine& machine) {
  int devices = 0;
  for (const v1::DeviceGroup& group : machine.devices()) devices += std::max(1, group.count());
  return devices;
}

}  // namespace

std::string RentLine(const v1::Cluster& cluster, const v1::DeploymentPlan& plan,
                     double usd_per_hour) {
  const std::map<std::string, CountsByKind> used = UsedOf(plan);
  std::vector<std::string> orders;
  int paid = 0, unused = 0;  // devices of whole machines
  for (const v1::Machine& machine : cluster.machines()) {
    const int offered = std::max(1, machine.available());
    int copies = 0, devices = 0;
    CountsByKind kinds;
    for (int copy = 1; copy <= offered; ++copy) {
      const auto it = used.find(offered > 1 ? StrCat(machine.name(), ".", copy) : machine.name());
      if (it == used.end()) continue;
      ++copies;
      for (const auto& [kind, count] : it->second) {
        kinds[kind] += count;
        devices += count;
      }
    }
    if (copies == 0) continue;
    if (machine.price_usd_per_hour() > 0) {
      orders.push_back(offered > 1 ? StrCat(copies, " of the ", offered, " ", machine.name())
                                   : machine.name());
      paid += copies * DevicesIn(machine);
      unused += copies * DevicesIn(machine) - devices;
      continue;
    }
    for (const auto& [kind, count] : kinds)
      orders.push_back(StrCat(count, " ", kind, " of ", machine.name(), " one by one"));
  }
  std::string line = "rent ";
  for (const std::string& order : orders) line += (line.size() > 5 ? ", " : "") + order;
  if (usd_per_hour > 0) absl::StrAppendFormat(&line, ": %.2f USD/h", usd_per_hour);
  if (unused > 0) {
    line += StrCat("; ", unused, " of the ", paid, " devices of whole machines ",
                   unused == 1 ? "is" : "are", " paid for and not used");
  }
  return line;
}

bool IsMarket(const v1::Cluster& cluster) {
  return std::any_of(cluster.machines().begin(), cluster.machines().end(),
                     [](const v1::Machine& m) { return m.available() > 1; });
}

}  // namespace tessera::scheduler
