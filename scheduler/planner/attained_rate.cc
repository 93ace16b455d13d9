#include "scheduler/planner/attained_rate.h"

#include <algorithm>
#include <cmath>

#include "scheduler/simulator/goodput.h"
#include "scheduler/simulator/plan_replicas.h"
#include "scheduler/simulator/report.h"

namespace tessera::scheduler {
namespace {

// A rate is served if this much of it is: what is left is the luck of the draw.
constexpr double kServes = 0.98;
constexpr double kStays = 12;  // how often what is in the system at once comes anew
constexpr int64_t kMostTimes = 3;
constexpr int kMostRounds = 12;
constexpr double kSmallStep = 0.98, kLargeStep = 0.8;  // of the rate, to the next one

// What a request takes on average.
double StaySeconds(const v1::DeploymentPlan& plan) {
  return plan.prediction().time_to_first_token_seconds() +
         plan.prediction().time_per_output_token_seconds() * plan.basis().output_tokens();
}

}  // namespace

absl::Status AddAttained(const AttainedQuestion& question, v1::DeploymentPlan* plan) {
  double rate = plan->prediction().requests_per_second();
  const double seen = plan->simulated().attained_requests_per_second();
  if (seen > 0) rate = std::min(rate, seen);
  if (!(rate > 0)) return absl::OkStatus();
  const auto fills = static_cast<int64_t>(std::ceil(kStays * StaySeconds(*plan) * rate));
  if (fills > kMostTimes * question.requests) return absl::OkStatus();
  const absl::StatusOr<PlanReplicas> replicas = ReplicasOfPlan(*plan, *question.graph, {});
  if (!replicas.ok()) return replicas.status();
  GoodputQuestion at;
  at.replicas = &*replicas;
  at.classes = &question.workload->classes;
  at.arrival_variation = question.workload->arrival_variation;
  at.requests = std::max(question.requests, fills);
  at.stop = question.watch.stop;
  for (int round = 0; round < kMostRounds; ++round) {
    double served = 1;  // of what comes
    bool enough = true;
    for (int seed = 1; seed <= question.seeds && enough; ++seed) {
      at.seed = static_cast<uint64_t>(seed);
      const absl::StatusOr<SimulationResult> result = SimulateAt(at, rate);
      if (!result.ok()) return result.status();
      served = ReportOf(*result).steady_requests_per_second / rate;
      enough =
          served >= kServes && (question.goal != Goal::kGoodput ||
                                EnoughAttained(*at.classes, AttainedByClass(*result, *at.classes)));
    }
    if (enough) {
      v1::SimulatedFigures& simulated = *plan->mutable_simulated();
      simulated.set_attained_requests_per_second(rate);
      simulated.set_attained_requests(at.requests);
      simulated.set_attained_seeds(question.seeds);
      return absl::OkStatus();
    }
    rate *= std::clamp(served, kLargeStep, kSmallStep);
  }
  return absl::OkStatus();
}

}  // namespace tessera::scheduler
