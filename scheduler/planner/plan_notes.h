// What a reader of a plan should know before machines are started: devices that compute the model's
// type another way or run no worker, too little KV for what requests may ask for, what the loss of
// a machine takes along, what a raised --max-sequences or KV in 8 bits would bring. Thread rule:
// pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "scheduler/planner/planner_input.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// The lowest compute capability that the workers' kernels are made for, and with bfloat16 units.
inline constexpr double kBfloat16Capability = 8.0;

// Tokens of the longest request that may come, in whole blocks; 0: nobody says.
double LongestRequestTokens(const PlannerOptions& options);

struct NotedPlan {
  const PlannerInput* input = nullptr;
  const PlannerOptions* options = nullptr;
  const PlacementProblem* problem = nullptr;
  const Placement* placement = nullptr;  // with the rates that are promised
  bool survives = false;                 // what the loss of a machine leaves is said already
  const std::map<std::string, int>* left_out = nullptr;  // devices by kind; null: none
};

std::vector<v1::Note> PlanNotes(const NotedPlan& plan);

}  // namespace tessera::scheduler
