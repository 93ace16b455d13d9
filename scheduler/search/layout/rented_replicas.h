// Which of the replicas that a search laid out are rented, where the goal is one of money.
//
// Problem: replicas that use devices of a machine with a price pay for it together, so that the
// second one costs nothing more. Idea: replicas that share such machines, each with the next, are a
// bunch; what may be rented of a bunch is an option, with what it serves and costs, and a program
// takes at most one option of each. Bunches that are alike are one: without that, branching goes
// astray. Of more than kMaxOfBunch replicas only the first ones by their rates are options; links
// are left out. Deterministic. Thread rule: pure function.
#pragma once

#include <vector>

#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

inline constexpr size_t kMaxOfBunch = 6;  // replicas of which every choice is an option

// By replica, all of them by different devices: kPrice serves the required rate for least, kBudget
// most within the budget. None where the required rate is out of reach. Replicas without a rate are
// not rented. Other goals: all that have a rate.
std::vector<bool> RentedReplicas(const PlacementProblem& problem,
                                 const std::vector<const PlacedReplica*>& replicas);

// What the marked ones cost to rent.
double RentOf(const PlacementProblem& problem, const std::vector<const PlacedReplica*>& replicas,
              const std::vector<bool>& rented);

}  // namespace tessera::scheduler
