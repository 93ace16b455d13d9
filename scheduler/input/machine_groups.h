// The one form of a cluster's links, however its description writes them: which machines have the
// same links, and which stand near each other.
//
// Problem: pair links, tiers and sites can say the same thing; searches that went by names of sites
// would plan it in two ways. Idea: all answers are read from the links alone. A place is machines
// with equal links to all others. A wide place is machines whose links to all others are alike to
// those of its first: measured links are never equal. Two machines are near if a message of 1 MB
// takes at most four times as long between them as from either to its nearest; a group is what is
// joined by such steps. Complexity: O(places^2) links, places^3 at worst where none are alike.
// Thread rule: pure functions. Deterministic; numbers go by first appearance.
#pragma once

#include <vector>

#include "scheduler/cost/hardware.h"

namespace tessera::scheduler {

// Machines by place, before any are found alike: links between places i and j are at
// [i * places + j]; within a place at [i * places + i], where it has several machines.
struct PlaceLinks {
  std::vector<int> machines;         // of each place; at least 1
  std::vector<LinkSpec> links;       // what the cost model takes
  std::vector<double> near_seconds;  // of a message of 1 MB, latencies that are known counted
  std::vector<LinkSpec> uplinks;     // of a machine of each place; of no bandwidth: it has none
  std::vector<int> shares;           // places that share another site's uplink are unlike

  int places() const { return static_cast<int>(machines.size()); }
};

// Number of the merged place of each place.
std::vector<int> AlikePlaces(const PlaceLinks& places);

// Number of the wide place of each place: bandwidths and latencies of its links differ by less than
// kAlikeLinks from those of the wide place's first.
inline constexpr double kAlikeLinks = 1.6;
std::vector<int> WidePlaces(const PlaceLinks& places);

// Number of the group of each place; -1: its machines stand near no other, each is one of its own.
std::vector<int> NearPlaces(const PlaceLinks& places);

}  // namespace tessera::scheduler
