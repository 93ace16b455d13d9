// What a plan takes for granted, one line each, "name = value (origin)", estimates apart from
// measurements. Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "proto/plan.pb.h"

namespace tessera::scheduler {

// Lines of the assumptions that are set. A class, or the workload, that is left out has no line.
// Names of PlanningTerms::constants: drafts of each sequence in a step, the most of any replica.
inline constexpr char kDraftsAlone[] = "drafts of one user alone";
inline constexpr char kDraftsAtRate[] = "drafts at the promised rate";

std::vector<std::string> AssumptionLines(const v1::Assumptions& assumptions);

std::string SpotAssumption(const v1::SpotTerms& spot);
std::string MoveAssumption(const v1::MoveTerms& move);

// "ESTIMATED, not measured: efficiencies of A40, L4; links inside 2 machines": what of the plan's
// assumptions is so marked; empty where nothing is.
std::string EstimatesText(const v1::DeploymentPlan& plan);

// Whether some price that the plan may rest on is the catalogue's.
bool PricesEstimated(const v1::DeploymentPlan& plan);

}  // namespace tessera::scheduler
