// What a cluster offers for rent, counted by offer: machines that are rented whole, and devices
// that are rented one by one.
//
// Machines that are alike (place, devices, links to all others) are one offer, any of them stands
// for the next. Thread rule: immutable; borrows the graph. Complexity: machines * offers.
#pragma once

#include <span>
#include <vector>

#include "scheduler/input/cluster_graph.h"

namespace tessera::scheduler {

struct RentalOffer {
  double usd_per_hour = 0;  // of one unit; with `prices`: at least
  int available = 0;        // units
  bool whole = false;       // a unit is a machine, else a device
  std::vector<int> pools;   // in order of the units: whole: those of a machine beside each other
  // Prices of none, one, two ... units, where that is not in proportion: see ClusterGraph.
  std::vector<double> prices = {};
};

class RentalOffers {
 public:
  explicit RentalOffers(const ClusterGraph& graph);

  const std::vector<RentalOffer>& all() const { return offers_; }
  // Devices per pool of the graph of so many units of each offer.
  std::vector<int> Devices(std::span<const int> units) const;
  // What a unit is worth where devices are worth this much, by pool.
  double WorthOf(const RentalOffer& offer, std::span<const double> device_worths) const;

 private:
  const ClusterGraph& graph_;
  std::vector<RentalOffer> offers_;
};

}  // namespace tessera::scheduler
