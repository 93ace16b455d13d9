// The plain choices that a plan is better than, each with its value and what held it back: one kind
// of device only, equal stages everywhere, splitting where the plan does not (or not splitting
// where it does), and holders of overlapping layers, which may also win (overlapping_alternative).
//
// They are built directly, not searched for: replicas of equal stages of one width, packed machine
// by machine; of these the best. Splits are tried between the replicas of the plan and of the plain
// choices, prefilling ones first by what they are better at. So each value is one that can be had,
// not the most that its kind can reach. What replicas share of links is counted only for KV.
// Thread rule: pure function, deterministic. Cost: some hundred placements judged, tens of
// milliseconds.
#pragma once

#include <string>
#include <vector>

#include "scheduler/search/problem.h"

namespace tessera::scheduler {

inline constexpr int kAlternativesUpTo = 64;  // devices; above, one line says that none were made

// A line per choice, for DeploymentPlan.alternatives.
std::vector<std::string> AlternativeLines(const PlacementProblem& problem, const Placement& chosen);

}  // namespace tessera::scheduler
