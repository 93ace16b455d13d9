// The links of a description by the names that people read, each to be changed in place.
//
// Thread rule: pure functions. The pointers live as long as the description is not changed
// otherwise.
#pragma once

#include <string>
#include <vector>

#include "proto/cluster.pb.h"

namespace tessera::scheduler {

struct DescribedLink {
  std::string name;  // "links within sites", "the uplink of a"
  v1::Link* link = nullptr;
  double load = 0;  // part of it that a plan uses; 0: nothing; counted only by LinksByLoad
};

// Every link that the description gives; not those that cards have by nature.
std::vector<DescribedLink> LinksOf(v1::Cluster* cluster);

}  // namespace tessera::scheduler
