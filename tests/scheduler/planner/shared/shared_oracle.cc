#include "tests/scheduler/planner/shared/shared_oracle.h"

#include <algorithm>
#include <map>

#include "scheduler/planner/planner.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::tests {

using scheduler::PlannerInput;
using scheduler::PlannerOptions;

namespace {

// Only so many devices of each group, in the order of the description.
v1::Cluster Part(const v1::Cluster& cluster, const std::vector<int>& counts) {
  v1::Cluster part = cluster;
  part.clear_machines();
  size_t at = 0;
  for (v1::Machine machine : cluster.machines()) {
    v1::Machine kept = machine;
    kept.clear_devices();
    for (v1::DeviceGroup group : machine.devices()) {
      const int count = counts[at++];
      group.set_count(count);
      if (count > 0) *kept.add_devices() = group;
    }
    if (!kept.devices().empty()) *part.add_machines() = kept;
  }
  return part;
}

}  // namespace

PlannerInput SharedInput(const std::string& cluster, const std::string& model,
                         double requests_per_second) {
  PlannerInput input = WrittenInput(cluster, model);
  input.workload.set_requests_per_second(requests_per_second);
  return input;
}

std::vector<int> GroupCounts(const v1::Cluster& cluster) {
  std::vector<int> counts;
  for (const v1::Machine& machine : cluster.machines()) {
    for (const v1::DeviceGroup& group : machine.devices())
      counts.push_back(std::max(1, group.count()));
  }
  return counts;
}

double RateOn(PlannerInput input, const std::vector<int>& counts, const std::string& search) {
  static auto& known = *new std::map<std::string, double>;
  input.cluster = Part(input.cluster, counts);
  if (input.cluster.machines().empty()) return 0;
  PlannerOptions options;
  options.search = search;
  options.simulate = false;  // it serves what is predicted
  const std::string key = input.cluster.SerializeAsString() + input.catalogue.SerializeAsString() +
                          input.workload.SerializeAsString() + input.model.name() + search;
  if (const auto found = known.find(key); found != known.end()) return found->second;
  const auto plan = MakePlan(input, options);
  return known[key] = plan.ok() ? plan->prediction().requests_per_second() : 0;
}

double BestTheta(const PlannerInput& a, const PlannerInput& b, double weight_a, double weight_b,
                 const std::string& search,
                 const std::function<bool(const std::vector<int>&)>& wanted) {
  const std::vector<int> all = GroupCounts(a.cluster);
  std::vector<int> part(all.size(), 0);
  double best = 0;
  bool more = true;
  while (more) {
    std::vector<int> rest = all;
    for (size_t i = 0; i < all.size(); ++i) rest[i] -= part[i];
    const double one = !wanted || wanted(part) ? RateOn(a, part, search) / weight_a : 0;
    if (one > best) best = std::max(best, std::min(one, RateOn(b, rest, search) / weight_b));
    more = false;
    for (size_t i = 0; i < all.size() && !more; ++i) {
      if (++part[i] <= all[i]) {
        more = true;
      } else {
        part[i] = 0;
      }
    }
  }
  return best;
}

}  // namespace tessera::tests
