// The placement that a preference chooses: candidates under several limits of TPOT, the most
// valuable of them simulated at the usual load of what they sustain, and the bound of the search at
// the limit of the one that is taken. Beside it what each preference would take, judged alike.
//
// Thread rule: one call at a time. Deterministic. Errors: those of the search; Internal where no
// candidate makes a plan that plan_check takes.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/planner/planning_problem.h"
#include "scheduler/planner/preference.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

struct PreferredPlacement {
  Placement placement;  // with bound and notes of the search at the limit of TPOT below
  double max_tpot_seconds = std::numeric_limits<double>::infinity();
  std::vector<v1::Note> notes;  // what limits and simplicity cost
  std::vector<v1::MissedLimit> missed;
  std::vector<v1::PlanChoice> choices;  // latency, balanced, throughput; empty: there is no choice
  std::optional<v1::SimulatedFigures> simulated;
  bool interrupted_simulation = false;
  std::string simulation_error;
};

absl::StatusOr<PreferredPlacement> SearchPreferred(const PlanningProblem& planning,
                                                   const Preference& preference,
                                                   const Search& search);

}  // namespace tessera::scheduler
