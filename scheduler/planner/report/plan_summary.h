// A plan in a few lines: what runs where, what to expect, how sure that is, the next command.
//
// At most kSummaryLines lines and one for each replica, of at most 100 columns; everything else is
// in PlanTable. Thread rule: pure function.
#pragma once

#include <string>

#include "proto/plan.pb.h"

namespace tessera::scheduler {

inline constexpr int kSummaryLines = 15;
inline constexpr size_t kSummaryColumns = 100;

// What the plan is asked with, for the commands that come next.
struct SummaryCommands {
  std::string weights;    // folder of the model, or a word for one
  std::string plan_file;  // empty: it is not kept
  std::string picture;    // file; empty: it is not drawn
};

std::string PlanSummary(const v1::DeploymentPlan& plan, const SummaryCommands& commands);

}  // namespace tessera::scheduler
