// Several models on one cluster: which devices serve which model, and one plan for each.
//
// Problem: the largest theta such that every model serves theta times its asked rate; where no
// model asks for a rate, theta times what it would serve with the whole cluster to itself. Idea:
// on few devices every deal of device sets is tried, each model's part planned by the search asked
// for (the best deal, as far as the search is). On more, units are whole placements of a model on
// parts of the cluster (machines, pairs, sites) and the replicas of its plan on all of it; a
// mixed-integer program takes units of all models within the devices,
//   max theta, for every model i: sum of rates of its units >= theta * weight_i,
// then the model that has least takes replicas' devices of the others while theta grows: a
// heuristic. What no deal serves more than is bounded beside it (shared_bound). Links that several
// models load are added up afterwards. Deterministic: budgets count searches. Thread rule: pure
// function. Errors: InvalidArgument for what cannot be asked, ResourceExhausted naming the model
// that does not fit beside the others.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "scheduler/planner/planner_input.h"

namespace tessera::scheduler {

struct SharingOptions {
  int all_sets_up_to = 64;           // device sets that are dealt in every way
  int most_searches = 120;           // of parts, by model
  int most_searched_devices = 1500;  // of these parts together, by model
  int most_units = 4000;             // of the program, by model
  int most_moves = 8;                // that improve the deal
  bool choices = true;               // also plan the plain choices beside the deal
  bool bound = true;                 // also say what no deal serves more than
  // Requests/s that theta is a multiple of, by model; empty: asked rates, else what each would
  // serve alone.
  std::vector<double> weights;
};

// What is said of the deal (other choices, ...) is in every plan: it is about all of them.
struct SharedPlans {
  std::vector<v1::DeploymentPlan> plans;  // as the inputs
  double theta = 0;                       // part of its rate that every model serves
  double upper_bound = 0;                 // no deal has a larger theta; 0: there is no bound
  // Theta that one more device of a kind is worth in the program that bounds it: estimates.
  std::map<std::string, double> device_worths;
  bool of_asked = true;         // false: of what each would serve alone, no rates were given
  bool plain = false;           // one of the plain choices beside it turned out to be the deal
  std::vector<double> weights;  // requests/s that theta is a multiple of, by model
  std::string text;             // the deal as a table, and how it was found
};

// Inputs share cluster and catalogue: those of the first count. Goal::kThroughput only; rates are
// given for all models or for none.
absl::StatusOr<SharedPlans> PlanShared(const std::vector<PlannerInput>& inputs,
                                       const PlannerOptions& options,
                                       const SharingOptions& sharing = {});

// What theta is a multiple of.
v1::ValueUnit ThetaUnit(bool of_asked);

// Theta of these plans: the least part of its weight that one serves, less where links that several
// plans load carry less than all of them send; `overload` says so then, else it stays as it is.
double CommonPart(const std::vector<v1::DeploymentPlan>& plans, const std::vector<double>& weights,
                  std::string* overload);

}  // namespace tessera::scheduler
