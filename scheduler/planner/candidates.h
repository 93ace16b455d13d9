// Placements that a preference chooses from: what a search finds under several limits of TPOT.
//
// Problem: a long TPOT buys throughput, and how much is worth it depends on both. Idea: the search
// runs without a limit and under a few limits between the TPOT that it needs then and the one that
// counts in full; the layouts that it finds are judged again under limits between these, which
// costs next to nothing beside a search. Where a rate is asked for, layouts that sustain it and
// answer soonest join them. What is plain (plain_placements.h) joins them, and where
// the best depends on one machine, what is found on that machine and on the others apart. The most
// valuable by their capacity get latencies by the formula. Where no placement keeps the problem's
// limit of TPOT, limits above it are searched in the same way. // Thread rule: pure function.
// Deterministic. Cost: up to max_searches searches and two of parts.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/planner/preference.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

struct CandidatePlacement {
  Placement placement;  // without others
  // With which it was judged, and has to be written; infinite: none.
  double max_tpot_seconds = std::numeric_limits<double>::infinity();
  PlanFigures predicted;
};

struct Candidates {
  std::vector<CandidatePlacement> placements;  // the best predicted value first; not empty
  double full_ttft_seconds = 0;                // up to which TTFT counts in full; 0: not weighed
  // Serves most where nothing limits TPOT; absent: not sought.
  std::optional<CandidatePlacement> most;
  // Answers one user alone soonest, with no limit of TPOT; absent: not sought, or nothing fits.
  std::optional<CandidatePlacement> fastest;
  // What each search said beside its replicas, which are left out; in the order of the searches.
  std::vector<CandidatePlacement> searched;
};

struct CandidateOptions {
  int max_searches = 0;  // under limits of TPOT beside the first; 0: by the number of devices
  bool bound = false;    // ask searches for bounds
  // The first search only shows where those under limits are to look: they take the time.
  bool rough_first = false;
  bool plain = false;     // what is plain takes part, even where simplicity is worth nothing
  bool tell_most = true;  // search without limits as well, for what limits cost
  bool mixed = true;      // stages over unlike devices
  bool fastest = true;    // look for what is soonest for one user
};

// Errors: the search's, where nothing is found under any limit.
absl::StatusOr<Candidates> FindCandidates(const PlacementProblem& problem,
                                          const Preference& preference, const Search& search,
                                          const CandidateOptions& options);

// The problem under that limit.
PlacementProblem UnderTpot(const PlacementProblem& problem, double max_tpot_seconds);

// By the formula. `problem` has the limit of TPOT that the placement was judged with; that of the
// workload, infinite where there is none, is the one that may be missed.
PlanFigures PredictedFigures(const PlacementProblem& problem, const Placement& placement,
                             double workload_tpot_seconds);

// Part of its rate at which latencies are stated: the asked one where it serves more, else the
// usual.
double ToldLoad(const PlacementProblem& problem, double requests_per_second);

// Equal where stages and roles are, in any order of replicas.
std::string LayoutKey(const Placement& placement);

// The longest TPOT of a replica, while all decode that may.
double LongestTpot(const Placement& placement);

// What the worst machine leaves; 0 where that is not counted, of so many devices.
double LeftAfterLoss(const PlacementProblem& problem, const Placement& placement);

}  // namespace tessera::scheduler
