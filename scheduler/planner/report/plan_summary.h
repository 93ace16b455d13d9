// A plan in a few lines: what runs where, what to expect, how sure that is, the next command; at
// the end the plans to choose from, where there are some.
//
// About kSummaryLines lines before these, and one for each replica, wrapped at 100 columns: what
// would make it longer is left out as a whole and stands in PlanTable; no amount, pipeline or
// command is cut off. Thread rule: pure function.
#pragma once

#include <string>

#include "proto/plan.pb.h"

namespace tessera::scheduler {

inline constexpr int kSummaryLines = 20;
inline constexpr size_t kSummaryColumns = 100;

// What the plan is asked with, for the commands that come next.
struct SummaryCommands {
  std::string weights;    // folder of the model, or a word for one
  std::string plan_file;  // empty: it is not kept
  std::string picture;    // file; empty: it is not drawn
};

std::string PlanSummary(const v1::DeploymentPlan& plan, const SummaryCommands& commands);

}  // namespace tessera::scheduler
