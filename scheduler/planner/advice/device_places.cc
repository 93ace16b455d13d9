#include "scheduler/planner/advice/device_places.h"

#include <algorithm>
#include <cstdint>

#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

// Machines of one shape and site are alike to a device that joins them.
std::string ShapeOf(const v1::Machine& machine) {
  std::string shape = StrCat(machine.site(), "|", machine.rack());
  for (const v1::DeviceGroup& group : machine.devices())
    shape += StrCat("|", group.kind(), ",", group.count(), ",", group.memory_bytes());
  return shape;
}

}  // namespace

std::set<std::string> KindsOf(const v1::Cluster& cluster) {
  std::set<std::string> kinds;
  for (const v1::Machine& machine : cluster.machines()) {
    for (const v1::DeviceGroup& group : machine.devices()) kinds.insert(group.kind());
  }
  return kinds;
}

int DevicesOf(const v1::Cluster& cluster) {
  int64_t devices = 0;
  for (const v1::Machine& machine : cluster.machines()) {
    for (const v1::DeviceGroup& group : machine.devices())
      devices += int64_t{std::max(1, machine.available())} * std::max(1, group.count());
  }
  return static_cast<int>(std::min<int64_t>(devices, 1 << 30));
}

std::vector<DevicePlace> PlacesFor(const std::string& kind, const v1::Cluster& cluster) {
  std::vector<DevicePlace> places;
  std::set<std::string> shapes, sites;
  for (const v1::Machine& machine : cluster.machines()) {
    const bool has = std::any_of(machine.devices().begin(), machine.devices().end(),
                                 [&](const auto& group) { return group.kind() == kind; });
    // A change to one of several machines that a market offers would change all of them.
    if (!has || machine.available() > 1 || !shapes.insert(ShapeOf(machine)).second) continue;
    places.push_back({StrCat("+1 ", kind, " on ", machine.name()), {}});
    places.back().fact.set_machine(machine.name());
  }
  for (const v1::Machine& machine : cluster.machines()) {
    if (!sites.insert(machine.site()).second) continue;
    places.push_back(
        {StrCat("+1 ", kind, machine.site().empty() ? "" : StrCat(" at ", machine.site())), {}});
    places.back().fact.set_site(machine.site());
  }
  return places;
}

}  // namespace tessera::scheduler
