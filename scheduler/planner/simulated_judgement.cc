#include "scheduler/planner/simulated_judgement.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "scheduler/simulator/arrivals.h"
#include "scheduler/simulator/plan_replicas.h"
#include "scheduler/simulator/report.h"

namespace tessera::scheduler {
namespace {

// Of the time that a request stays, between first and last arrival.
constexpr double kResidences = 25;
// A rate is served if this much of it is: what is left is the luck of the draw.
constexpr double kServes = 0.98;

class Judge {
 public:
  Judge(const JudgementQuestion& question, std::vector<v1::DeploymentPlan>& candidates)
      : question_(question), candidates_(candidates) {}

  absl::StatusOr<size_t> Run() {
    Rates common = {0, candidates_.front().basis().requests_per_second()};
    for (const v1::DeploymentPlan& plan : candidates_)
      common.full = std::max(common.full, plan.prediction().requests_per_second());
    most_rate_ = common.full;
    std::vector<v1::SimulatedFigures> figures;
    for (const v1::DeploymentPlan& plan : candidates_) {
      absl::StatusOr<v1::SimulatedFigures> seen = Simulated(plan, common);
      if (!seen.ok()) return seen.status();
      figures.push_back(*std::move(seen));
    }
    size_t best = 0;
    for (size_t i = 1; i < figures.size(); ++i) {
      if (Beats(figures, i, best)) best = i;
    }
    v1::DeploymentPlan& chosen = candidates_[best];
    const Rates own = {chosen.prediction().requests_per_second(),
                       chosen.basis().requests_per_second()};
    absl::StatusOr<v1::SimulatedFigures> shown = figures[best];
    if (own.full != common.full || own.usual != common.usual) shown = Simulated(chosen, own);
    if (!shown.ok()) return shown.status();
    *chosen.mutable_simulated() = *std::move(shown);
    if (figures.size() > 1) Explain(figures, best, &chosen);
    return best;
  }

 private:
  struct Rates {
    double full = 0, usual = 0;
  };

  absl::StatusOr<v1::SimulatedFigures> Simulated(const v1::DeploymentPlan& plan,
                                                 const Rates& rates) const {
    const absl::StatusOr<PlanReplicas> replicas = ReplicasOfPlan(plan, *question_.graph, {});
    if (!replicas.ok()) return replicas.status();
    const absl::StatusOr<SimulationReport> full = At(*replicas, rates.full);
    if (!full.ok()) return full.status();
    const absl::StatusOr<SimulationReport> usual = At(*replicas, rates.usual);
    if (!usual.ok()) return usual.status();
    v1::SimulatedFigures figures;
    figures.set_offered_requests_per_second(rates.full);
    figures.set_requests_per_second(full->steady_requests_per_second);
    figures.set_latency_requests_per_second(rates.usual);
    figures.set_time_to_first_token_mean_seconds(usual->ttft.mean);
    figures.set_time_to_first_token_p50_seconds(usual->ttft.p50);
    figures.set_time_to_first_token_p99_seconds(usual->ttft.p99);
    figures.set_time_per_output_token_mean_seconds(usual->tpot.mean);
    figures.set_time_per_output_token_p50_seconds(usual->tpot.p50);
    figures.set_time_per_output_token_p99_seconds(usual->tpot.p99);
    figures.set_attainment(HasObjectives() ? usual->attainment : 0);
    figures.set_requests(usual->requests);
    figures.set_seed(question_.seed);
    return figures;
  }

  absl::StatusOr<SimulationReport> At(const PlanReplicas& replicas, double rate) const {
    const v1::Prediction& first = candidates_.front().prediction();
    const double stays =
        first.time_to_first_token_seconds() +
        first.time_per_output_token_seconds() * candidates_.front().basis().output_tokens();
    const auto wanted = static_cast<int64_t>(std::ceil(kResidences * most_rate_ * stays));
    SimulationSetup setup;
    setup.replicas = replicas.replicas;
    setup.transfers = replicas.transfers;
    const ArrivalProcess process = {
        rate, question_.workload->arrival_variation,
        std::clamp(wanted, question_.least_requests, question_.most_requests), question_.seed};
    setup.requests = RequestsFromProcess(process, question_.workload->classes);
    AskForAtMost(0, &setup.requests);
    const std::unique_ptr<Dispatcher> dispatcher = MakePlanDispatcher({{0, replicas.shares}});
    const absl::StatusOr<SimulationResult> result = Simulate(setup, dispatcher.get());
    if (!result.ok()) return result.status();
    return ReportOf(*result, question_.workload->classes);
  }

  bool HasObjectives() const {
    const auto& classes = question_.workload->classes;
    return std::any_of(classes.begin(), classes.end(),
                       [](const RequestClass& c) { return c.limits.any(); });
  }

  double ValueOf(const v1::SimulatedFigures& figures) const {
    double value = figures.requests_per_second();
    if (question_.goal == Goal::kPrice) {
      const double asked = question_.workload->requests_per_second;
      value = value >= kServes * asked ? asked : value;
    }
    return HasObjectives() ? value * figures.attainment() : value;
  }

  bool Beats(const std::vector<v1::SimulatedFigures>& figures, size_t i, size_t best) const {
    return ValueOf(figures[i]) > (1 + question_.clearly) * ValueOf(figures[best]);
  }

  // Beside the second: the first of the others.
  void Explain(const std::vector<v1::SimulatedFigures>& figures, size_t best,
               v1::DeploymentPlan* plan) const {
    const size_t other = best == 0 ? 1 : 0;
    const auto seen = [&](size_t i) {
      const double attains = figures[i].attainment();
      return absl::StrFormat("%.3f", figures[i].requests_per_second()) +
             (HasObjectives() ? absl::StrFormat(" (%.1f %% within their limits)", 100 * attains)
                              : std::string());
    };
    plan->add_explanation(absl::StrFormat(
        "%s: of %.3f requests/s that come to each, the most that one of them promises, it serves "
        "%s, and %s %s; that one was predicted to serve %.3f",
        best == 0 ? "the simulation ranks no other choice clearly higher"
                  : "chosen because the simulation ranks it clearly higher",
        figures[best].offered_requests_per_second(), seen(best),
        best == 0 ? "the next best" : "the choice with the best prediction", seen(other),
        candidates_[other].prediction().requests_per_second()));
  }

  const JudgementQuestion& question_;
  std::vector<v1::DeploymentPlan>& candidates_;
  double most_rate_ = 0;  // that any of them promises
};

}  // namespace

absl::StatusOr<size_t> JudgeBySimulation(const JudgementQuestion& question,
                                         std::vector<v1::DeploymentPlan>* candidates) {
  return Judge(question, *candidates).Run();
}

}  // namespace tessera::scheduler
