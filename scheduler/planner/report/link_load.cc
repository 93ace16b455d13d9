#include "scheduler/planner/report/link_load.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "scheduler/cost/cost_model.h"
#include "scheduler/cost/hand_over_bytes.h"

namespace tessera::scheduler {
namespace {

class Traffic {
 public:
  using Ends = std::map<std::pair<int, int>, double>;  // bytes per second between two machines

  Traffic(const v1::DeploymentPlan& plan, const ClusterGraph& graph, const ModelShape& model)
      : plan_(plan), graph_(graph), model_(model) {
    for (size_t i = 0; i < graph.machines().size(); ++i)
      index_[graph.machines()[i].name] = static_cast<int>(i);
    for (const v1::Replica& replica : plan.replicas()) replicas_[replica.name()] = &replica;
    for (const v1::RoutingShare& share : plan.routing()) {
      bytes_ = &of_share_.emplace_back();
      AddShare(share);
    }
  }

  // `parts`: of each share of the routing that is sent.
  std::vector<v1::LinkLoad> Loads(const std::vector<double>& parts) {
    Ends sum;
    std::vector<Crossing> of_machine(graph_.machines().size());
    std::map<std::string, Crossing> of_site;
    for (size_t i = 0; i < of_share_.size(); ++i) {
      for (const auto& [ends, bytes] : of_share_[i]) sum[ends] += bytes * parts[i];
    }
    std::vector<v1::LinkLoad> loads;
    const auto& machines = graph_.machines();
    for (const auto& [ends, bytes] : sum) {
      const size_t from = static_cast<size_t>(ends.first), to = static_cast<size_t>(ends.second);
      of_machine[from].out += bytes;
      of_machine[to].in += bytes;
      if (machines[from].site != machines[to].site) {
        of_site[machines[from].site].out += bytes;
        of_site[machines[to].site].in += bytes;
      }
      v1::LinkLoad& load = loads.emplace_back();
      load.set_from(machines[from].name);
      load.set_to(machines[to].name);
      load.set_bytes_per_second(bytes);
      load.set_capacity_bytes_per_second(graph_.Between(ends.first, ends.second).bytes_per_second);
    }
    for (size_t m = 0; m < machines.size(); ++m) {
      if (machines[m].uplink)
        AddUplink(machines[m].name, *machines[m].uplink, of_machine[m], &loads);
    }
    for (const auto& [site, link] : graph_.site_uplinks())
      AddUplink(site, link, of_site[site], &loads);
    return loads;
  }

  // Whether share i of the routing sends anything over this link or uplink.
  bool Uses(size_t i, const v1::LinkLoad& load) const {
    for (const auto& [ends, bytes] : of_share_[i]) {
      const MachineNode& from = graph_.machines()[static_cast<size_t>(ends.first)];
      const MachineNode& to = graph_.machines()[static_cast<size_t>(ends.second)];
      if (!load.to().empty()) {
        if (from.name == load.from() && to.name == load.to()) return true;
      } else if (from.name == load.from() || to.name == load.from() ||
                 (from.site != to.site && (from.site == load.from() || to.site == load.from()))) {
        return true;
      }
    }
    return false;
  }

 private:
  // What leaves and enters a place; what stays inside it does not count.
  struct Crossing {
    double out = 0, in = 0;  // bytes per second
  };

  // -1 for a device of no machine of the graph.
  int MachineOf(const v1::Stage& stage) const {
    const std::string& device = stage.workers(0).device();
    const auto found = index_.find(device.substr(0, device.rfind('/')));
    return found == index_.end() ? -1 : found->second;
  }

  void Add(int from, int to, double bytes) {
    if (from >= 0 && to >= 0 && from != to && bytes > 0) (*bytes_)[{from, to}] += bytes;
  }

  void AddHops(const v1::Replica& replica, double tokens_per_second) {
    const double bytes =
        tokens_per_second * static_cast<double>(model_.hidden) * model_.wire_bytes_per_element;
    for (int j = 0; j + 1 < replica.stages_size(); ++j)
      Add(MachineOf(replica.stages(j)), MachineOf(replica.stages(j + 1)), bytes);
  }

  void AddKv(const v1::Replica& from, const v1::Replica& to, double bytes_per_layer) {
    for (const v1::Stage& sender : from.stages()) {
      const v1::Range& sent = sender.workers(0).share().layers();
      for (const v1::Stage& receiver : to.stages()) {
        const v1::Range& wanted = receiver.workers(0).share().layers();
        const int64_t layers =
            std::min(sent.end(), wanted.end()) - std::max(sent.begin(), wanted.begin());
        if (layers > 0)
          Add(MachineOf(sender), MachineOf(receiver),
              bytes_per_layer * static_cast<double>(layers));
      }
    }
  }

  double RatioOf(const std::string& codec) const {
    for (const KvCodec known : {KvCodec::kInt8, KvCodec::kInt4}) {
      if (codec == Name(known)) return KvCodecRatio(known, KvElementBytes(model_));
    }
    return 1;
  }

  void AddShare(const v1::RoutingShare& share) {
    const auto from = replicas_.find(share.prefill_replica());
    const auto to = replicas_.find(share.decode_replica());
    if (from == replicas_.end() || to == replicas_.end()) return;
    const double rate = share.share() * plan_.prediction().requests_per_second();
    const v1::PlanBasis& basis = plan_.basis();
    AddHops(*from->second, rate * basis.uncached_prompt_tokens());
    AddHops(*to->second, rate * std::max(0.0, basis.output_tokens() - 1));
    if (from == to) return;
    const double kv = basis.prompt_tokens() * KvBytesPerToken(model_) * RatioOf(share.kv_codec());
    const double bytes = (kv + StateBytesHandedOver(model_)) / model_.layers;
    AddKv(*from->second, *to->second, rate * bytes);
  }

  static void AddUplink(const std::string& name, const LinkSpec& link, const Crossing& crossing,
                        std::vector<v1::LinkLoad>* loads) {
    if (crossing.out <= 0 && crossing.in <= 0) return;
    v1::LinkLoad& load = loads->emplace_back();
    load.set_from(name);
    load.set_bytes_per_second(std::max(crossing.out, crossing.in));
    load.set_capacity_bytes_per_second(link.bytes_per_second);
  }

  const v1::DeploymentPlan& plan_;
  const ClusterGraph& graph_;
  const ModelShape& model_;
  std::map<std::string, int> index_;
  std::map<std::string, const v1::Replica*> replicas_;
  std::vector<Ends> of_share_;  // as plan.routing()
  Ends* bytes_ = nullptr;       // that are being added up
};

}  // namespace

std::vector<v1::LinkLoad> LinkLoads(const v1::DeploymentPlan& plan, const ClusterGraph& graph,
                                    const ModelShape& model) {
  const std::vector<double> all(static_cast<size_t>(plan.routing_size()), 1.0);
  return Traffic(plan, graph, model).Loads(all);
}

std::map<std::string, std::vector<v1::LinkLoad>> FullLinks(const v1::DeploymentPlan& plan,
                                                           const ClusterGraph& graph,
                                                           const ModelShape& model) {
  constexpr double kFull = 0.995;
  std::map<std::string, std::vector<v1::LinkLoad>> full;
  Traffic traffic(plan, graph, model);
  const std::vector<double> all(static_cast<size_t>(plan.routing_size()), 1.0);
  for (const v1::LinkLoad& load : traffic.Loads(all)) {
    if (load.bytes_per_second() < kFull * load.capacity_bytes_per_second()) continue;
    std::set<std::string> names;
    for (int i = 0; i < plan.routing_size(); ++i) {
      if (!traffic.Uses(static_cast<size_t>(i), load)) continue;
      names.insert(plan.routing(i).prefill_replica());
      names.insert(plan.routing(i).decode_replica());
    }
    for (const std::string& name : names) full[name].push_back(load);
  }
  return full;
}

std::vector<double> CarriedParts(const v1::DeploymentPlan& plan, const ClusterGraph& graph,
                                 const ModelShape& model) {
  Traffic traffic(plan, graph, model);
  std::vector<double> parts(static_cast<size_t>(plan.routing_size()), 1.0);
  while (true) {
    // Loads only shrink, so a link that fits stays so: as many rounds as links at most.
    const std::vector<v1::LinkLoad> loads = traffic.Loads(parts);
    const v1::LinkLoad* worst = nullptr;
    double most = 1 + 1e-9;
    for (const v1::LinkLoad& load : loads) {
      const double over = load.bytes_per_second() / load.capacity_bytes_per_second();
      if (over <= most) continue;
      most = over;
      worst = &load;
    }
    if (worst == nullptr) return parts;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (traffic.Uses(i, *worst)) parts[i] /= most;
    }
  }
}

}  // namespace tessera::scheduler
