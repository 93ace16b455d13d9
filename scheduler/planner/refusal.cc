#include "scheduler/planner/refusal.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

// The most that the same devices serve with less asked of them; 0: nothing either.
double Served(const Search& search, const PlacementProblem& problem) {
  const absl::StatusOr<Placement> placement = search(problem);
  return placement.ok() ? placement->requests_per_second : 0;
}

}  // namespace

absl::Status WhyNoPlan(const Search& search, const PlacementProblem& problem,
                       const absl::Status& found, const std::string& cluster_file,
                       const std::string& workload_file) {
  if (problem.watch.Stopped())
    return absl::DeadlineExceededError("stopped before any plan was found; allow more time");
  if (!found.ok() && found.code() != absl::StatusCode::kResourceExhausted) return found;
  if (problem.goal == Goal::kGoodput && !found.ok()) return found;  // it knows its limits
  if (problem.goal == Goal::kGoodput) {
    return absl::ResourceExhaustedError(
        StrCat(workload_file,
               ": the best placement found meets the objectives for less than one request in three "
               "hours; relax time_to_first_token, time_per_output_token or end_to_end, or ask for "
               "less attainment"));
  }
  if (problem.goal == Goal::kPrice || problem.goal == Goal::kBudget) {
    PlacementProblem all = problem;
    all.goal = Goal::kThroughput;
    if (const double served = Served(search, all); served > 0) {
      return absl::ResourceExhaustedError(
          problem.goal == Goal::kPrice
              ? absl::StrFormat("%s: requests_per_second (--rate): %g are asked, and the best plan "
                                "found for all "
                                "these devices serves %.3f; ask for less or add devices",
                                workload_file, problem.required_requests_per_second, served)
              : absl::StrFormat(
                    "%s: budget: nothing that serves the model costs %g USD/h or less; allow more",
                    cluster_file, problem.budget_usd_per_hour));
    }
  }
  if (std::isfinite(problem.options.max_tpot_seconds)) {
    PlacementProblem patient = problem;
    patient.goal = Goal::kThroughput;
    patient.options.max_tpot_seconds = std::numeric_limits<double>::infinity();
    if (const double served = Served(search, patient); served > 0) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("%s: no placement that was found keeps %.3g ms per output token; without "
                          "this limit these "
                          "devices serve %.3f requests/s: allow more time per token",
                          workload_file, problem.options.max_tpot_seconds * 1e3, served));
    }
  }
  if (!found.ok()) return found;
  return absl::ResourceExhaustedError(
      StrCat(workload_file, ": no placement of these devices serves a request"));
}

}  // namespace tessera::scheduler
