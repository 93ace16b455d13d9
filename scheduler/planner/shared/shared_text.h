// Plans of models that share a cluster, for people: as text, as one drawing, as files.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "scheduler/planner/shared/shared_cluster.h"

namespace tessera::scheduler {

// The deal with what is said of it, then a table of every plan.
std::string SharedText(const SharedPlans& plans);

// All of them as one, for PlanPicture and for what links carry: replicas are called "A.r0", with
// the model's letter in the title, shares are of the requests of their model, what several send
// over a link is added up.
v1::DeploymentPlan PlanForPicture(const SharedPlans& plans);

// File names of the plans: "plan.json" -> "plan.Llama-3-8B.json"; unique, whatever the models are
// called.
std::vector<std::string> PlanFileNames(const std::string& file, const SharedPlans& plans);

}  // namespace tessera::scheduler
