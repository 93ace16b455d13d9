// Other choices than a plan, in sentences. Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "proto/plan.pb.h"

namespace tessera::scheduler {

// What kind of choice it is: "equal stages of equal width everywhere", "only L4".
std::string ChoiceName(v1::ChoiceKind choice, const std::string& kind = "");

// "2 A40, 4 L4".
std::string KindCountsText(const google::protobuf::RepeatedPtrField<v1::KindCount>& kinds);

// A line per choice, in the order of the plan.
std::vector<std::string> AlternativeLines(const v1::DeploymentPlan& plan);

// What each preference takes, a row each below a heading; empty: there was no choice.
std::vector<std::string> PreferenceRows(const v1::DeploymentPlan& plan);

}  // namespace tessera::scheduler
