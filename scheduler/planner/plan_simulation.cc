#include "scheduler/planner/plan_simulation.h"

#include <algorithm>
#include <cmath>

#include "scheduler/planner/missed_limits.h"
#include "scheduler/simulator/goodput.h"
#include "scheduler/simulator/report.h"

namespace tessera::scheduler {
namespace {

// How often what is in the system at once comes again between first and last arrival: so often, as
// far as `enough_requests` go, but at least as often as the second figure: the served rate is
// measured in the second half, in which the longest of the first requests finish as well.
constexpr double kStays = 25;
constexpr double kMinStays = 12;
constexpr double kTimedStays = 8;  // at least, for times, which need no second half

absl::StatusOr<SimulationResult> At(const SimulatedQuestion& question, const PlanReplicas& replicas,
                                    double rate, int64_t requests) {
  const WorkloadSamples& workload = *question.workload;
  return SimulateAt({&replicas, &workload.classes, workload.arrival_variation, requests,
                     question.seed, question.watch.stop},
                    rate);
}

// Means by class.
std::vector<v1::MissedLimit> MissedIn(const SimulationResult& result,
                                      const std::vector<RequestClass>& classes) {
  MissedLimits missed;
  for (size_t c = 0; c < classes.size(); ++c) {
    double ttft = 0, end_to_end = 0, finished = 0;
    for (size_t i = 0; i < result.requests.size(); ++i) {
      const RequestOutcome& outcome = result.outcomes[i];
      if (result.requests[i].request_class != static_cast<int>(c) ||
          outcome.fate != Fate::kFinished)
        continue;
      ttft += outcome.ttft_seconds(result.requests[i]);
      end_to_end += outcome.finished_seconds - result.requests[i].arrival_seconds;
      ++finished;
    }
    if (finished <= 0) continue;
    missed.Add(v1::LATENCY_LIMIT_TTFT, classes[c].limits.ttft_seconds, ttft / finished);
    missed.Add(v1::LATENCY_LIMIT_END_TO_END, classes[c].limits.end_to_end_seconds,
               end_to_end / finished);
  }
  return missed.all();
}

}  // namespace

int64_t RequestsFor(const SimulatedQuestion& question, const v1::DeploymentPlan& plan, double rate,
                    Seen seen) {
  const double stay =
      plan.prediction().time_to_first_token_seconds() +
      plan.prediction().time_per_output_token_seconds() * plan.basis().output_tokens();
  double in_system = rate * stay;
  // At capacity replicas fill up, however few requests the predicted rate keeps in them.
  if (seen == Seen::kServed) {
    double sequences = 0;
    for (const v1::Replica& replica : plan.replicas()) {
      if (replica.role() != v1::REPLICA_ROLE_PREFILL)
        sequences += static_cast<double>(replica.max_sequences());
    }
    in_system = std::max(in_system, sequences);
  }
  const auto of_stays = [in_system](double stays) {
    return static_cast<int64_t>(std::ceil(stays * in_system));
  };
  return std::max(
      std::clamp(of_stays(kStays), question.least_requests, question.enough_requests),
      std::min(of_stays(seen == Seen::kServed ? kMinStays : kTimedStays), question.max_requests));
}

absl::Status SeeServed(const SimulatedQuestion& question, const PlanReplicas& replicas, double rate,
                       int64_t requests, v1::SimulatedFigures* figures) {
  const absl::StatusOr<SimulationResult> result = At(question, replicas, rate, requests);
  if (!result.ok()) return result.status();
  const SimulationReport report = ReportOf(*result, question.workload->classes);
  figures->set_offered_requests_per_second(rate);
  figures->set_requests_per_second(report.steady_requests_per_second);
  figures->set_requests(report.requests);
  figures->set_seed(question.seed);
  return absl::OkStatus();
}

absl::Status SeeLatencies(const SimulatedQuestion& question, const PlanReplicas& replicas,
                          double rate, int64_t requests, v1::SimulatedFigures* figures,
                          std::vector<v1::MissedLimit>* missed) {
  const absl::StatusOr<SimulationResult> result = At(question, replicas, rate, requests);
  if (!result.ok()) return result.status();
  const SimulationReport report = ReportOf(*result, question.workload->classes);
  figures->set_latency_requests_per_second(rate);
  figures->set_time_to_first_token_mean_seconds(report.ttft.mean);
  if (std::isfinite(report.ttft_error_seconds))
    figures->set_time_to_first_token_error_seconds(report.ttft_error_seconds);
  figures->set_time_to_first_token_p50_seconds(report.ttft.p50);
  figures->set_time_to_first_token_p99_seconds(report.ttft.p99);
  figures->set_time_per_output_token_mean_seconds(report.tpot.mean);
  figures->set_time_per_output_token_p50_seconds(report.tpot.p50);
  figures->set_time_per_output_token_p99_seconds(report.tpot.p99);
  figures->set_attainment(HasObjectives(*question.workload) ? report.attainment : 0);
  if (missed != nullptr) *missed = MissedIn(*result, question.workload->classes);
  return absl::OkStatus();
}

bool HasObjectives(const WorkloadSamples& workload) {
  return std::any_of(workload.classes.begin(), workload.classes.end(),
                     [](const RequestClass& c) { return c.limits.any(); });
}

}  // namespace tessera::scheduler
