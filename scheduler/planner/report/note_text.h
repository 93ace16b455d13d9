// What a plan notes about itself, in sentences: how it came about, what it costs, what to know of
// it. Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "proto/plan.pb.h"

namespace tessera::scheduler {

// One sentence; those that a reader must not miss begin with "warning: ".
std::string NoteText(const v1::Note& note, const v1::DeploymentPlan& plan);

// Every note of the plan, then what its other figures say: the bound, what a machine's loss leaves,
// weak replicas, spot machines, how long weights take to load.
std::vector<std::string> NoteLines(const v1::DeploymentPlan& plan);

// "rent 2 h100x2 on demand and 1 as spot, for 3 that the plan needs: 13.00 USD/h".
// Which limits of the workload no plan keeps, and by how much this one misses them; empty: it
// keeps all. The first of the plan's notes, and of what is printed of it.
std::string MissedLine(const v1::DeploymentPlan& plan);

std::string SpotLine(const v1::SpotMix& mix);

// How long weights take to load, and what the way from the running plan costs.
std::vector<std::string> MoveLines(const v1::DeploymentPlan& plan);

}  // namespace tessera::scheduler
