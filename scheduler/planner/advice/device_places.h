// Which devices a description offers, and where one more could stand. Thread rule: pure functions.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "proto/cluster.pb.h"
#include "proto/plan_facts.pb.h"

namespace tessera::scheduler {

std::set<std::string> KindsOf(const v1::Cluster& cluster);

// How many there are of all kinds, in machines that are available.
int DevicesOf(const v1::Cluster& cluster);

struct DevicePlace {
  std::string change;  // that puts one more there, as --what-if writes it
  v1::DevicePlaceFact fact;
};

// Beside those of that kind in a machine of every shape, and as a machine of its own at every site.
std::vector<DevicePlace> PlacesFor(const std::string& kind, const v1::Cluster& cluster);

}  // namespace tessera::scheduler
