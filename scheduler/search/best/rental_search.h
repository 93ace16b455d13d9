// Goals of money where machines are rented whole: which machines to rent, and what runs on them.
//
// Problem: a machine with a price is paid once any of its devices is used, so what a replica costs
// depends on the others. Idea: once it is settled what is rented, the goal is plain throughput.
// Sets of offers within the budget are ranked by what the relaxed configuration program serves on
// them, and the best are planned, each as a cluster of its own, until none that is left promises
// more than the best plan. For the least price that is done within ever less money. The bound of
// the budget is that of the program, over sets of whole machines. Deterministic: budgets count
// plans and devices. Thread rule: pure function. Limits: a heuristic, as are the plans of more than
// eight devices.
#pragma once

#include "scheduler/search/best/class_search.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// Goals kBudget and kPrice. `planner` plans a part of the cluster for kThroughput.
ClassSearchResult SearchRentals(const PlacementProblem& problem, const Search& planner);

}  // namespace tessera::scheduler
