#include "scheduler/planner/advice/described_links.h"

#include <algorithm>
#include <map>
#include <set>

#include "scheduler/input/catalogue.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kInsideLoad = 0.5;

double LoadOf(const v1::LinkLoad& load) {
  return load.bytes_per_second() / load.capacity_bytes_per_second();
}

class Loads {
 public:
  Loads(const v1::DeploymentPlan& plan, PlannerInput* input) : plan_(plan), input_(*input) {
    for (v1::Machine& machine : *input_.cluster.mutable_machines()) {
      const int copies = std::max(1, machine.available());
      for (int copy = 1; copy <= copies; ++copy)
        machines_[copies > 1 ? StrCat(machine.name(), ".", copy) : machine.name()] = &machine;
    }
  }

  std::vector<DescribedLink> ByLoad() {
    links_ = LinksOf(&input_.cluster);
    if (plan_.links().empty()) links_.clear();
    for (DescribedLink& one : links_) load_of_[one.link] = 0;
    for (const v1::LinkLoad& load : plan_.links()) Between(load);
    for (v1::Machine* machine : UsedInside()) Inside(machine);
    for (DescribedLink& one : links_) one.load = load_of_[one.link];
    std::stable_sort(links_.begin(), links_.end(),
                     [](const auto& a, const auto& b) { return a.load > b.load; });
    return std::move(links_);
  }

 private:
  void Use(v1::Link* link, double load) {
    double& most = load_of_[link];
    most = std::max(most, load);
  }

  // Whatever may be the link between the two: a slower uplink may hide that another is not used.
  void Between(const v1::LinkLoad& load) {
    const auto from = machines_.find(load.from()), to = machines_.find(load.to());
    if (load.to().empty()) {
      if (from != machines_.end()) Use(from->second->mutable_uplink(), LoadOf(load));
      for (v1::Site& site : *input_.cluster.mutable_sites()) {
        if (site.name() == load.from()) Use(site.mutable_uplink(), LoadOf(load));
      }
      return;
    }
    if (from == machines_.end() || to == machines_.end()) return;
    const v1::Machine &a = *from->second, &b = *to->second;
    const auto is = [](const std::string& end, const std::string& name,
                       const v1::Machine& machine) { return end == name || end == machine.site(); };
    for (v1::PairLink& pair : *input_.cluster.mutable_links()) {
      if ((is(pair.from(), load.from(), a) && is(pair.to(), load.to(), b)) ||
          (!pair.one_way() && is(pair.to(), load.from(), a) && is(pair.from(), load.to(), b)))
        Use(pair.mutable_link(), LoadOf(load));
    }
    if (!input_.cluster.has_tiers()) return;
    v1::Tiers& tiers = *input_.cluster.mutable_tiers();
    if (a.site() != b.site()) {
      if (tiers.has_region()) Use(tiers.mutable_region(), LoadOf(load));
      return;
    }
    if (tiers.has_site()) Use(tiers.mutable_site(), LoadOf(load));
    if (tiers.has_rack() && a.rack() == b.rack()) Use(tiers.mutable_rack(), LoadOf(load));
  }

  // In the order of the description, copies of a machine once.
  std::vector<v1::Machine*> UsedInside() {
    std::set<const v1::Machine*> used;
    for (const v1::Replica& replica : plan_.replicas()) {
      std::set<std::string> names;
      for (const v1::Stage& stage : replica.stages()) {
        for (const v1::PlannedWorker& worker : stage.workers()) {
          const std::string name = worker.device().substr(0, worker.device().rfind('/'));
          const auto found = machines_.find(name);
          if (!names.insert(name).second && found != machines_.end()) used.insert(found->second);
        }
      }
    }
    std::vector<v1::Machine*> machines;
    for (v1::Machine& machine : *input_.cluster.mutable_machines()) {
      if (used.contains(&machine)) machines.push_back(&machine);
    }
    return machines;
  }

  void Inside(v1::Machine* machine) {
    if (machine->has_inside()) {
      UseInside(StrCat("the links inside ", machine->name()), machine->mutable_inside());
      return;
    }
    if (input_.cluster.tiers().has_machine()) {
      UseInside("links inside machines", input_.cluster.mutable_tiers()->mutable_machine());
      return;
    }
    // Unlike kinds meet at the pace of the slowest.
    std::string kind;
    v1::Link* slowest = nullptr;
    for (const v1::DeviceGroup& group : machine->devices()) {
      v1::Link* peer = PeerLink(group.kind());
      if (peer == nullptr || (slowest != nullptr && peer->bandwidth_bytes_per_second() >=
                                                        slowest->bandwidth_bytes_per_second()))
        continue;
      kind = group.kind();
      slowest = peer;
    }
    if (slowest != nullptr) UseInside(StrCat("the links of ", kind, " inside machines"), slowest);
  }

  void UseInside(const std::string& name, v1::Link* link) {
    const bool known = std::any_of(links_.begin(), links_.end(),
                                   [&](const DescribedLink& one) { return one.link == link; });
    if (!known) links_.push_back({name, link});
    Use(link, kInsideLoad);
  }

  v1::Link* PeerLink(const std::string& kind) {
    for (v1::DeviceKind& own : *input_.cluster.mutable_kinds()) {
      if (own.name() == kind && own.has_peer_link()) return own.mutable_peer_link();
    }
    const v1::DeviceKind* found = FindKind(input_.catalogue, kind);
    for (v1::DeviceKind& known : *input_.catalogue.mutable_kinds()) {
      if (&known == found && known.has_peer_link()) return known.mutable_peer_link();
    }
    return nullptr;
  }

  const v1::DeploymentPlan& plan_;
  PlannerInput& input_;
  std::map<std::string, v1::Machine*> machines_;  // by the names that plans use
  std::map<const v1::Link*, double> load_of_;
  std::vector<DescribedLink> links_;
};

}  // namespace

std::vector<DescribedLink> LinksByLoad(const v1::DeploymentPlan& plan, PlannerInput* input) {
  return Loads(plan, input).ByLoad();
}

}  // namespace tessera::scheduler
