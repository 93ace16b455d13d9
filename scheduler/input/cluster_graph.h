// A cluster description, validated and ready to plan on: devices with their figures, machines, and
// the link between any two machines.
//
// Figures of a device: its measured profile beats the cluster's own kinds, which beat the
// catalogue. A link between two machines: the pair's own, else that of the closest tier they share
// (rack, site, region), never faster than an uplink on the way. A latency that is not given is its
// tier's default (an uplink's: none beside the tier's; a pair's, where no machine names a site: a
// region's between machines that are far from each other). Machines are grouped by their links, not
// by the names of sites: see machine_groups.h. A machine whose devices are joined by unlike links
// is several nodes of one name, of devices that are joined alike, with links of their own between
// them. Thread rule: immutable after MakeClusterGraph; specs are stable in memory for its life
// (move-only). Errors: InvalidArgument naming file, key and reason.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"
#include "scheduler/cost/hardware.h"

namespace tessera::scheduler {

// All equal devices of one machine, whether its description lists them or counts them.
struct DevicePool {
  int machine = 0;
  const DeviceSpec* spec = nullptr;
  int count = 0;
  std::vector<int> indices;       // of each within its machine: devices are "machine/index"
  double price_usd_per_hour = 0;  // of one device; of a machine with a price, its part of that
};

struct MachineNode {
  std::string name;
  std::string site;  // as described: what its uplink, if it has one, is shared by
  std::string rack;
  int host = 0;        // the first node of the same machine: what fails with it
  int place = 0;       // machines of a place have equal links to all others; see machine_groups.h
  int wide_place = 0;  // those of a wide place have alike ones; never more than places
  int group = 0;       // of machines that are near each other, however this was written
  LinkSpec inside;
  std::optional<LinkSpec> uplink;
  double price_usd_per_hour = 0;  // of the whole, where it is rented so; 0: device by device
  int priced_with = -1;           // index into prices_together(); -1: it costs its price
};

class ClusterGraph {
 public:
  const std::vector<MachineNode>& machines() const { return machines_; }
  const std::vector<DevicePool>& pools() const { return pools_; }
  int devices() const;
  int groups() const { return groups_; }  // of machines that are near each other
  double budget_usd_per_hour() const { return budget_; }

  // Between two machines; inside one where they are the same.
  const LinkSpec& Between(int from, int to) const {
    if (from == to) return machines_[static_cast<size_t>(from)].inside;
    return links_[place_of_[static_cast<size_t>(from)] * places_ +
                  place_of_[static_cast<size_t>(to)]];
  }
  // What it costs to rent what `used` devices of each pool need: machines with a price as a whole.
  double RentOf(std::span<const int> used) const;
  // What none, one, two ... of machines cost that are rented together, at least the price of each
  // one: such as where a whole number of them is spot. In order of PriceTogether.
  const std::vector<std::vector<double>>& prices_together() const { return together_; }
  void PriceTogether(const std::vector<int>& machines, std::vector<double> usd_per_hour);
  // Whether some machine is to be had only together with devices that nobody may need, or at a
  // price that depends on how many of them are rented.
  bool rents_whole_machines() const;
  // What all machines of a site share on their way to other sites, by site.
  const std::map<std::string, LinkSpec>& site_uplinks() const { return site_uplinks_; }
  // The site with an uplink that the machine shares; "": it shares none.
  std::string_view UplinkSite(int machine) const;
  std::string DeviceName(const DevicePool& pool, int i) const;
  // The same machines, sites and links with only `counts` devices of each pool. Pools that lose all
  // of theirs are left out: (*kept)[i] is this graph's index of the part's pool i.
  ClusterGraph Part(const std::vector<int>& counts, std::vector<int>* kept) const;
  // Seconds that stand for latencies that were not given, by tier ("machine", "rack", "site",
  // "region"), where any were needed.
  const std::map<std::string, double>& default_latencies() const { return default_latencies_; }
  // At which KV is rounded for its way and read back, of raw KV, on the slowest device of which
  // that was measured; 0: it was of none.
  double kv_codec_bytes_per_second() const;
  // Kinds whose efficiencies are estimates, for "assumptions".
  std::vector<std::string> EstimatedKinds() const;

 private:
  friend class ClusterGraphBuilder;
  std::vector<std::unique_ptr<DeviceSpec>> specs_;
  std::vector<MachineNode> machines_;
  std::vector<DevicePool> pools_;
  std::vector<size_t> place_of_;  // of each machine: machines of a place have like links to others
  std::vector<LinkSpec> links_;   // between places
  size_t places_ = 0;
  int groups_ = 0;
  std::map<std::string, LinkSpec> site_uplinks_;
  std::map<std::string, double> default_latencies_;
  std::vector<std::vector<double>> together_;
  double budget_ = 0;
};

// The named kind with the cluster's own figures over the catalogue's; nothing where neither has it.
std::optional<v1::DeviceKind> DescribedKind(const v1::Cluster& cluster,
                                            const v1::DeviceCatalogue& catalogue,
                                            std::string_view name);

absl::StatusOr<ClusterGraph> MakeClusterGraph(const v1::Cluster& cluster,
                                              const v1::DeviceCatalogue& catalogue,
                                              std::string_view file);

}  // namespace tessera::scheduler
