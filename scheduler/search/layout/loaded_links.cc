#include "scheduler/search/layout/loaded_links.h"

namespace tessera::scheduler {

void LoadedLinks::Load(int from_machine, int to_machine, size_t user, double bytes) {
  if (from_machine == to_machine) return;
  const MachineNode& from = graph_.machines()[static_cast<size_t>(from_machine)];
  const MachineNode& to = graph_.machines()[static_cast<size_t>(to_machine)];
  Add("machines", from.name, to.name, graph_.Between(from_machine, to_machine), user, bytes);
  if (from.uplink) Add("machine", from.name, "", *from.uplink, user, bytes);
  if (to.uplink) Add("machine", "", to.name, *to.uplink, user, bytes);
  if (from.site == to.site) return;
  const auto& sites = graph_.site_uplinks();
  if (const auto out = sites.find(from.site); out != sites.end())
    Add("site", from.site, "", out->second, user, bytes);
  if (const auto in = sites.find(to.site); in != sites.end())
    Add("site", "", to.site, in->second, user, bytes);
}

std::vector<LoadedLink> LoadedLinks::Take() {
  std::vector<LoadedLink> links;
  for (auto& [ends, link] : links_) links.push_back(std::move(link));
  links_.clear();
  return links;
}

void LoadedLinks::Add(const char* what, const std::string& from, const std::string& to,
                      const LinkSpec& link, size_t user, double bytes) {
  LoadedLink& entry = links_[{what, from, to}];
  entry.rate = link.bytes_per_second;
  entry.uses.push_back({user, bytes});
}

}  // namespace tessera::scheduler
