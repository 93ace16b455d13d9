#include "scheduler/input/cluster_graph.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "scheduler/input/catalogue.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {

int ClusterGraph::devices() const {
  int sum = 0;
  for (const DevicePool& pool : pools_) sum += pool.count;
  return sum;
}

std::string ClusterGraph::DeviceName(const DevicePool& pool, int i) const {
  return StrCat(machines_[static_cast<size_t>(pool.machine)].name, "/",
                pool.indices[static_cast<size_t>(i)]);
}

std::string_view ClusterGraph::UplinkSite(int machine) const {
  const std::string& site = machines_[static_cast<size_t>(machine)].site;
  return site_uplinks_.contains(site) ? std::string_view(site) : std::string_view();
}

ClusterGraph ClusterGraph::Part(const std::vector<int>& counts, std::vector<int>* kept) const {
  ClusterGraph part;
  std::map<const DeviceSpec*, const DeviceSpec*> copies;
  for (const auto& spec : specs_) {
    part.specs_.push_back(std::make_unique<DeviceSpec>(*spec));
    copies[spec.get()] = part.specs_.back().get();
  }
  part.machines_ = machines_;
  part.place_of_ = place_of_;
  part.links_ = links_;
  part.places_ = places_;
  part.groups_ = groups_;
  part.site_uplinks_ = site_uplinks_;
  part.default_latencies_ = default_latencies_;
  part.together_ = together_;
  part.budget_ = budget_;
  kept->clear();
  for (size_t p = 0; p < pools_.size(); ++p) {
    const int count = std::min(counts[p], pools_[p].count);
    if (count <= 0) continue;
    kept->push_back(static_cast<int>(p));
    part.pools_.push_back(pools_[p]);
    part.pools_.back().spec = copies[pools_[p].spec];
    part.pools_.back().count = count;
  }
  return part;
}

void ClusterGraph::PriceTogether(const std::vector<int>& machines,
                                 std::vector<double> usd_per_hour) {
  for (const int machine : machines)
    machines_[static_cast<size_t>(machine)].priced_with = static_cast<int>(together_.size());
  together_.push_back(std::move(usd_per_hour));
}

double ClusterGraph::RentOf(std::span<const int> used) const {
  double usd = 0;
  std::vector<size_t> together(together_.size(), 0);  // machines
  int paid = -1;                                      // pools of a machine stand beside each other
  for (size_t p = 0; p < pools_.size(); ++p) {
    if (used[p] == 0) continue;
    const int machine = pools_[p].machine;
    const MachineNode& node = machines_[static_cast<size_t>(machine)];
    if (node.price_usd_per_hour <= 0) {
      usd += used[p] * pools_[p].price_usd_per_hour;
    } else if (std::exchange(paid, machine) != machine) {
      if (node.priced_with < 0) {
        usd += node.price_usd_per_hour;
      } else {
        ++together[static_cast<size_t>(node.priced_with)];
      }
    }
  }
  for (size_t i = 0; i < together.size(); ++i) usd += together_[i][together[i]];
  return usd;
}

bool ClusterGraph::rents_whole_machines() const {
  if (!together_.empty()) return true;
  std::vector<int> devices(machines_.size(), 0);
  for (const DevicePool& pool : pools_) devices[static_cast<size_t>(pool.machine)] += pool.count;
  for (size_t m = 0; m < machines_.size(); ++m) {
    if (machines_[m].price_usd_per_hour > 0 && devices[m] > 1) return true;
  }
  return false;
}

std::vector<std::string> ClusterGraph::EstimatedKinds() const {
  std::set<std::string> kinds;
  for (const auto& spec : specs_) {
    if (spec->estimated) kinds.insert(spec->kind);
  }
  return {kinds.begin(), kinds.end()};
}

double ClusterGraph::kv_codec_bytes_per_second() const {
  double least = 0;
  for (const DevicePool& pool : pools_) {
    const double rate = pool.spec->kv_codec_bytes_per_second;
    if (rate > 0 && (least == 0 || rate < least)) least = rate;
  }
  return least;
}

std::optional<v1::DeviceKind> DescribedKind(const v1::Cluster& cluster,
                                            const v1::DeviceCatalogue& catalogue,
                                            std::string_view name) {
  std::optional<v1::DeviceKind> kind;
  if (const v1::DeviceKind* known = FindKind(catalogue, name)) kind = *known;
  for (const v1::DeviceKind& own : cluster.kinds()) {
    if (own.name() != name) continue;
    if (!kind) kind.emplace();
    kind->MergeFrom(own);
  }
  return kind;
}

}  // namespace tessera::scheduler
