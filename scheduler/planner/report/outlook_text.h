// What a plan is worth where assumptions are off, and what more devices and bandwidth would bring,
// in sentences. Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "proto/plan.pb.h"

namespace tessera::scheduler {

// A line each, in the order of the plan.
std::vector<std::string> SensitivityLines(const v1::DeploymentPlan& plan);
std::vector<std::string> DevicePriceLines(const v1::DeploymentPlan& plan);
std::vector<std::string> LinkPriceLines(const v1::DeploymentPlan& plan);

// "outputs 20 % longer".
std::string ChangedName(v1::Assumed assumed, double factor);

// "in machine a", "as a machine of its own at oregon".
std::string PlaceText(const v1::DevicePlaceFact& place);

// Other choices and all of these, each list with its heading; those that are empty are left out.
void AppendOutlook(const v1::DeploymentPlan& plan, std::string* out);

}  // namespace tessera::scheduler
