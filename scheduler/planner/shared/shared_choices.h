// The plain choices beside a deal of devices to several models: what each would come to, and which
// model limits it.
//
// Deals that share no machine, or no kind of device, between models, and the even deal, each part
// planned by the dealer's search; and all models in turn on the whole cluster, as a yardstick.
// Which group of devices (a machine, a kind) goes to which model is tried in every way on few
// devices; on more a program chooses by what the groups are worth to the models by estimate, and
// again with what the search makes of its answer (heuristic). Thread rule: pure functions; the
// dealer is used, and borrowed. Deterministic.
#pragma once

#include <string>
#include <vector>

#include "scheduler/planner/shared/deal.h"

namespace tessera::scheduler {

struct SharingQuestion {
  Dealer& dealer;  // that has run
  const std::vector<const PlacementProblem*>& problems;
  const std::vector<double>& weights;  // requests/s that theta is a multiple of, by model
  const std::vector<Placement>& alone;
  bool of_asked = true;  // the weights are asked rates
};

struct OtherDeal {
  std::string name;
  Deal deal;             // without placements: there is none
  std::string why_none;  // names a model
};

// Those that `deal` is not already one of.
std::vector<OtherDeal> OtherDeals(const SharingQuestion& question, const Deal& deal);

// For people: every choice against the deal.
std::vector<std::string> ChoiceLines(const SharingQuestion& question, const Deal& deal,
                                     const std::vector<OtherDeal>& others);

// "2 A40, 4 L4"; kinds in the order of their names.
std::string KindsText(const ClusterGraph& graph, const DeviceCounts& devices);

}  // namespace tessera::scheduler
