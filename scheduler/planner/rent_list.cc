#include "scheduler/planner/rent_list.h"

#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/str_format.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

// Devices that the plan uses, by machine.
std::map<std::string, int> UsedOf(const v1::DeploymentPlan& plan) {
  std::map<std::string, int> used;
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers())
        ++used[worker.device().substr(0, worker.device().rfind('/'))];
    }
  }
  return used;
}

int DevicesIn(const v1::Machine& machine) {
  int devices = 0;
  for (const v1::DeviceGroup& group : machine.devices()) devices += std::max(1, group.count());
  return devices;
}

constexpr double kSameMoney = 0.005;  // USD/h

}  // namespace

std::vector<std::string> RentLines(const v1::Cluster& cluster, const v1::DeploymentPlan& plan) {
  const bool market = std::any_of(cluster.machines().begin(), cluster.machines().end(),
                                  [](const v1::Machine& m) { return m.available() > 1; });
  if (!market) return {};
  const std::map<std::string, int> used = UsedOf(plan);
  std::string list;
  double usd = 0, usd_used = 0;
  bool priced = true;
  for (const v1::Machine& machine : cluster.machines()) {
    const int offered = std::max(1, machine.available());
    int count = 0, devices = 0;
    for (int copy = 1; copy <= offered; ++copy) {
      const auto it = used.find(offered > 1 ? StrCat(machine.name(), ".", copy) : machine.name());
      if (it == used.end()) continue;
      ++count;
      devices += it->second;
    }
    if (count == 0) continue;
    list += StrCat(list.empty() ? "" : ", ", count, " of the ", offered, " ", machine.name());
    usd += count * machine.price_usd_per_hour();
    usd_used += machine.price_usd_per_hour() * devices / DevicesIn(machine);
    priced = priced && machine.price_usd_per_hour() > 0;
  }
  std::string line = StrCat("rent ", list);
  if (!priced) return {line};
  absl::StrAppendFormat(&line, ": %.2f USD/h for whole machines", usd);
  if (usd > usd_used + kSameMoney) {
    absl::StrAppendFormat(
        &line,
        ", of which the devices that the plan uses are %.2f; the objective counts "
        "these alone",
        usd_used);
  }
  std::vector<std::string> lines = {std::move(line)};
  const double budget = cluster.budget_usd_per_hour();
  if (usd_used <= budget + kSameMoney && usd > budget + kSameMoney) {
    lines.push_back(
        absl::StrFormat("BEWARE: the %.2f USD/h for whole machines exceed the budget of %.2f: it "
                        "counts the devices "
                        "that are used",
                        usd, budget));
  }
  return lines;
}

}  // namespace tessera::scheduler
