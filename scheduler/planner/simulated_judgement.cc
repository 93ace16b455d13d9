#include "scheduler/planner/simulated_judgement.h"

#include <algorithm>
#include <cmath>

#include "scheduler/simulator/arrivals.h"
#include "scheduler/simulator/goodput.h"
#include "scheduler/simulator/plan_replicas.h"
#include "scheduler/simulator/report.h"

namespace tessera::scheduler {
namespace {

// How often what is in the system at once comes anew between first and last arrival: so often, as
// far as `enough_requests` go, but at least as often as the second figure: the served rate is
// measured in the second half, in which the longest of the first requests finish as well.
constexpr double kStays = 25;
constexpr double kLeastStays = 12;
constexpr double kTimedStays = 8;  // at least, for times, which need no second half
// A simulation serves hardly more of what was predicted.
constexpr double kMostOfPrediction = 1.1;
// A rate is served if this much of it is: what is left is the luck of the draw.
constexpr double kServes = 0.98;

class Judge {
 public:
  Judge(const JudgementQuestion& question, std::vector<v1::DeploymentPlan>& candidates)
      : question_(question), candidates_(candidates) {}

  absl::StatusOr<size_t> Run() {
    Rates common = {0, candidates_.front().basis().requests_per_second()};
    for (const v1::DeploymentPlan& plan : candidates_) {
      common.full = std::max(common.full, plan.prediction().requests_per_second());
      absl::StatusOr<PlanReplicas> replicas = ReplicasOfPlan(plan, *question_.graph, {});
      if (!replicas.ok()) return replicas.status();
      replicas_.push_back(*std::move(replicas));
    }
    most_rate_ = common.full;
    if (question_.goal == Goal::kGoodput) return MostInTime();
    std::vector<v1::SimulatedFigures> figures(candidates_.size());
    for (size_t i = 0; i < figures.size(); ++i) {
      if (i > 0 && !CouldBeat(candidates_[i], figures.front())) continue;
      if (absl::Status s = SeeServed(i, common.full, &figures[i]); !s.ok()) return s;
      if (!HasObjectives()) continue;
      if (absl::Status s = SeeLatencies(i, common.usual, &figures[i]); !s.ok()) return s;
    }
    size_t best = 0;
    for (size_t i = 1; i < figures.size(); ++i) {
      if (Beats(figures, i, best)) best = i;
    }
    if (absl::Status s = Show(best, figures[best]); !s.ok()) return s;
    const size_t other = best == 0 ? 1 : 0;
    if (figures.size() > other && figures[other].requests() > 0) {
      Explain(figures, best, &candidates_[best]);
    } else if (figures.size() > 1) {
      candidates_[best].add_notes()->mutable_simulated_choice()->set_predicted_best(best == 0);
    }
    return best;
  }

 private:
  struct Rates {
    double full = 0, usual = 0;
  };

  // For goodput: the candidate that attains what is asked at the largest rate. Of the others only
  // rates that would be clearly higher are tried, which mostly is one.
  absl::StatusOr<size_t> MostInTime() {
    size_t best = 0;
    double attained = 0, first = 0;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      const double promised = candidates_[i].prediction().requests_per_second();
      const double least = (1 + question_.clearly) * attained;
      if (promised <= least) continue;
      GoodputQuestion question;
      question.replicas = &replicas_[i];
      question.classes = &question_.workload->classes;
      question.arrival_variation = question_.workload->arrival_variation;
      question.requests = std::max(Requests(), question_.goodput_requests);
      question.seed = question_.seed;
      question.stop = question_.watch.stop;
      const absl::StatusOr<double> most = SimulatedGoodputUpTo(question, least, promised);
      if (!most.ok()) return most.status();
      if (i == 0) first = *most;
      if (*most <= 0) continue;
      attained = *most;
      best = i;
    }
    v1::SimulatedFigures figures;
    figures.set_attained_requests_per_second(attained);
    if (absl::Status s = Show(best, std::move(figures)); !s.ok()) return s;
    if (candidates_.size() == 1) return best;
    v1::SimulatedChoice& choice = *candidates_[best].add_notes()->mutable_simulated_choice();
    choice.set_predicted_best(best == 0);
    choice.set_goodput(true);
    if (best == 0) return best;
    choice.mutable_plan()->set_requests_per_second(attained);
    choice.mutable_other()->set_requests_per_second(first);
    choice.set_other_predicted_requests_per_second(
        candidates_.front().prediction().requests_per_second());
    return best;
  }

  // The chosen one, at its own rates; `figures` are those that are known.
  absl::Status Show(size_t i, v1::SimulatedFigures figures) {
    v1::DeploymentPlan& plan = candidates_[i];
    absl::Status s = SeeServed(i, plan.prediction().requests_per_second(), &figures);
    if (s.ok()) s = SeeLatencies(i, plan.basis().requests_per_second(), &figures);
    if (s.ok()) *plan.mutable_simulated() = std::move(figures);
    return s;
  }

  // Of candidate `i`, as far as `figures` do not have it.
  absl::Status SeeServed(size_t i, double rate, v1::SimulatedFigures* figures) const {
    if (figures->offered_requests_per_second() == rate) return absl::OkStatus();
    const absl::StatusOr<SimulationReport> report = At(replicas_[i], rate, Requests());
    if (!report.ok()) return report.status();
    figures->set_offered_requests_per_second(rate);
    figures->set_requests_per_second(report->steady_requests_per_second);
    figures->set_requests(report->requests);
    figures->set_seed(question_.seed);
    return absl::OkStatus();
  }

  // The same.
  absl::Status SeeLatencies(size_t i, double rate, v1::SimulatedFigures* figures) const {
    if (figures->latency_requests_per_second() == rate) return absl::OkStatus();
    const absl::StatusOr<SimulationReport> report = At(replicas_[i], rate, Requests(kTimedStays));
    if (!report.ok()) return report.status();
    figures->set_latency_requests_per_second(rate);
    figures->set_time_to_first_token_mean_seconds(report->ttft.mean);
    if (std::isfinite(report->ttft_error_seconds))
      figures->set_time_to_first_token_error_seconds(report->ttft_error_seconds);
    figures->set_time_to_first_token_p50_seconds(report->ttft.p50);
    figures->set_time_to_first_token_p99_seconds(report->ttft.p99);
    figures->set_time_per_output_token_mean_seconds(report->tpot.mean);
    figures->set_time_per_output_token_p50_seconds(report->tpot.p50);
    figures->set_time_per_output_token_p99_seconds(report->tpot.p99);
    figures->set_attainment(HasObjectives() ? report->attainment : 0);
    return absl::OkStatus();
  }

  // The same for every candidate; fewer for times than for rates.
  int64_t Requests(double least_stays = kLeastStays) const {
    const v1::Prediction& first = candidates_.front().prediction();
    const double stay =
        first.time_to_first_token_seconds() +
        first.time_per_output_token_seconds() * candidates_.front().basis().output_tokens();
    const auto of_stays = [&](double stays) {
      return static_cast<int64_t>(std::ceil(stays * most_rate_ * stay));
    };
    return std::max(
        std::clamp(of_stays(kStays), question_.least_requests, question_.enough_requests),
        std::min(of_stays(least_stays), question_.most_requests));
  }

  absl::StatusOr<SimulationReport> At(const PlanReplicas& replicas, double rate,
                                      int64_t requests) const {
    SimulationSetup setup;
    setup.replicas = replicas.replicas;
    setup.transfers = replicas.transfers;
    const ArrivalProcess process = {rate, question_.workload->arrival_variation, requests,
                                    question_.seed, true};
    setup.requests = RequestsFromProcess(process, question_.workload->classes);
    AskForAtMost(0, &setup.requests);
    setup.stop = question_.watch.stop;
    const std::unique_ptr<Dispatcher> dispatcher = MakePlanDispatcher({{0, replicas.shares}});
    const absl::StatusOr<SimulationResult> result = Simulate(setup, dispatcher.get());
    if (!result.ok()) return result.status();
    return ReportOf(*result, question_.workload->classes);
  }

  // Whether it promises enough to be clearly above the first, which was simulated.
  bool CouldBeat(const v1::DeploymentPlan& plan, const v1::SimulatedFigures& first) const {
    return HasObjectives() || question_.goal == Goal::kPrice ||
           kMostOfPrediction * plan.prediction().requests_per_second() >
               (1 + question_.clearly) * first.requests_per_second();
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
    v1::SimulatedChoice& choice = *plan->add_notes()->mutable_simulated_choice();
    const auto seen = [&](size_t i, v1::JudgedChoice* judged) {
      judged->set_requests_per_second(figures[i].requests_per_second());
      judged->set_attainment(figures[i].attainment());
    };
    choice.set_predicted_best(best == 0);
    choice.set_offered_requests_per_second(figures[best].offered_requests_per_second());
    seen(best, choice.mutable_plan());
    seen(other, choice.mutable_other());
    choice.set_other_predicted_requests_per_second(
        candidates_[other].prediction().requests_per_second());
  }

  const JudgementQuestion& question_;
  std::vector<v1::DeploymentPlan>& candidates_;
  std::vector<PlanReplicas> replicas_;  // of the candidates
  double most_rate_ = 0;                // that any of them promises
};

}  // namespace

absl::StatusOr<size_t> JudgeBySimulation(const JudgementQuestion& question,
                                         std::vector<v1::DeploymentPlan>* candidates) {
  return Judge(question, *candidates).Run();
}

}  // namespace tessera::scheduler
