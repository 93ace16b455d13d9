// Which plan a balanced choice gives way to.
//
// Problem: a plan is valued at its own rate, where one that serves far more has longer steps, so
// that a choice may serve a part of what the same devices do at the same latencies. Idea: another
// is taken that serves half as many requests more, is worth at most a fifth less, keeps the limits
// and serves on after the loss of a machine where the choice does, and, simulated at the load that
// the choice's figures are of, answers as soon. Thread rule: pure function of what `plans` answers.
// Units: seconds, requests per second.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "scheduler/planner/preference.h"

namespace tessera::scheduler {

// The plans to choose from, by index.
struct SimulatedPlans {
  size_t count = 0;
  // As simulated so far, some with few requests.
  std::function<const Choosable&(size_t)> known;
  // TTFT and TPOT at that rate; absent: the simulation did not end.
  std::function<std::optional<PlanFigures>(size_t, double requests_per_second)> at_rate;
  // Simulates again what was simulated with few requests, and then knows that. False: that did not
  // end.
  std::function<bool(size_t)> see_in_full;
};

// The most valuable, seen in full, of those that `given` gives way to; itself, where there is none.
// `load`: part of its rate that its latencies are of.
size_t GivenWayTo(const SimulatedPlans& plans, size_t given, double load,
                  const Preference& preference);

}  // namespace tessera::scheduler
