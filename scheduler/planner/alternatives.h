// The plain choices that a plan is better than, each with its value and what held it back: one kind
// of device only, equal stages everywhere, splitting where the plan does not (or not splitting
// where it does).
//
// They are built directly, not searched for: replicas of equal stages of one width, packed machine
// by machine; of these the best. Splits are tried between the replicas of the plan and of the plain
// choices, prefilling ones first by what they are better at; for throughput one is given besides
// (split_placement.h), as roles want other replicas. Each value is one that can be had,
// not the most that its kind can reach. They are judged as the plan is: by goodput where that is
// the goal, by what is left after the loss of a machine where the plan must survive it. What
// replicas share of links is counted only for KV. Thread rule: pure function, deterministic. Cost:
// some hundred placements judged, tens of milliseconds for few devices.
#pragma once

#include <vector>

#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// Devices, above which no splits are tried, as judging them takes seconds: each
// placement has a program of its own. (Equal stages: kPlainUpTo in plain_placements.h.)
inline constexpr int kProgramsUpTo = 64;
inline constexpr int kGoodputSplitsUpTo = 32;  // of which each pair is judged by its attainment

// How the plan is judged, and its alternatives with it.
struct AlternativeQuestion {
  const PlacementProblem* problem = nullptr;  // borrowed, as the next
  const Placement* chosen = nullptr;
  // Found by SplitPlacement; null: none, or not sought.
  const Placement* split_everywhere = nullptr;
  double promised_requests_per_second = 0;  // by the plan
  bool survives = false;                    // that is what is left when any machine is lost
};

std::vector<v1::OtherChoice> OtherChoices(const AlternativeQuestion& question);

}  // namespace tessera::scheduler
