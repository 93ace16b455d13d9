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
  v1::ChoiceKind choice = v1::CHOICE_KIND_UNSPECIFIED;
  Deal deal;              // without placements: there is none
  v1::MissingChoice why;  // there is none
};

// Those that `deal` is not already one of.
std::vector<OtherDeal> OtherDeals(const SharingQuestion& question, const Deal& deal);

// Every choice against the deal.
std::vector<v1::OtherChoice> OtherChoices(const SharingQuestion& question, const Deal& deal,
                                          const std::vector<OtherDeal>& others);

// In the order of their names.
google::protobuf::RepeatedPtrField<v1::KindCount> KindsOf(const ClusterGraph& graph,
                                                          const DeviceCounts& devices);

}  // namespace tessera::scheduler
