#include "scheduler/planner/report/rent_list.h"

#include <algorithm>
#include <map>

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

v1::RentOrders RentOrdersOf(const v1::Cluster& cluster, const v1::DeploymentPlan& plan,
                            double usd_per_hour) {
  const std::map<std::string, CountsByKind> used = UsedOf(plan);
  v1::RentOrders rent;
  rent.set_usd_per_hour(usd_per_hour);
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
      v1::RentOrder& order = *rent.add_orders();
      order.set_machine(machine.name());
      order.set_machines(copies);
      order.set_offered(offered);
      paid += copies * DevicesIn(machine);
      unused += copies * DevicesIn(machine) - devices;
      continue;
    }
    for (const auto& [kind, count] : kinds) {
      v1::RentOrder& order = *rent.add_orders();
      order.set_machine(machine.name());
      order.mutable_devices()->set_kind(kind);
      order.mutable_devices()->set_devices(count);
    }
  }
  rent.set_paid_devices(paid);
  rent.set_unused_devices(unused);
  return rent;
}

bool IsMarket(const v1::Cluster& cluster) {
  return std::any_of(cluster.machines().begin(), cluster.machines().end(),
                     [](const v1::Machine& m) { return m.available() > 1; });
}

}  // namespace tessera::scheduler
