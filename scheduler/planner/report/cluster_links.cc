#include "scheduler/planner/report/cluster_links.h"

#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {

std::vector<DescribedLink> LinksOf(v1::Cluster* cluster) {
  std::vector<DescribedLink> links;
  if (cluster->has_tiers()) {
    v1::Tiers& tiers = *cluster->mutable_tiers();
    if (tiers.has_machine()) links.push_back({"links inside machines", tiers.mutable_machine()});
    if (tiers.has_rack()) links.push_back({"links within racks", tiers.mutable_rack()});
    if (tiers.has_site()) links.push_back({"links within sites", tiers.mutable_site()});
    if (tiers.has_region()) links.push_back({"links between sites", tiers.mutable_region()});
  }
  for (v1::PairLink& pair : *cluster->mutable_links())
    links.push_back({StrCat("the link ", pair.from(), "-", pair.to()), pair.mutable_link()});
  for (v1::Machine& machine : *cluster->mutable_machines()) {
    if (machine.has_uplink())
      links.push_back({StrCat("the uplink of ", machine.name()), machine.mutable_uplink()});
    if (machine.has_inside())
      links.push_back({StrCat("the links inside ", machine.name()), machine.mutable_inside()});
  }
  for (v1::Site& site : *cluster->mutable_sites()) {
    if (site.has_uplink())
      links.push_back({StrCat("the uplink of site ", site.name()), site.mutable_uplink()});
  }
  return links;
}

}  // namespace tessera::scheduler
