#include "scheduler/planner/simulated_judgement.h"

#include <algorithm>
#include <cmath>

#include "scheduler/planner/plan_simulation.h"
#include "scheduler/simulator/goodput.h"
#include "scheduler/simulator/plan_replicas.h"

namespace tessera::scheduler {
namespace {

// A simulation serves hardly more of what was predicted.
constexpr double kMaxOfPrediction = 1.1;
// A rate is served if this much of it is: what is left is the luck of the draw.
constexpr double kServes = 0.98;

class Judge {
 public:
  Judge(const JudgementQuestion& question, std::vector<v1::DeploymentPlan>& candidates)
      : question_(question),
        simulated_{question.graph,          question.workload,
                   question.least_requests, question.enough_requests,
                   question.most_requests,  question.seed,
                   question.watch},
        candidates_(candidates) {}

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
      if (absl::Status s = SeeServedOnce(i, common.full, &figures[i]); !s.ok()) return s;
      if (!HasObjectives(*question_.workload)) continue;
      if (absl::Status s = SeeLatenciesOnce(i, common.usual, &figures[i]); !s.ok()) return s;
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
      question.requests = std::max(Requests(Seen::kServed), question_.goodput_requests);
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
    absl::Status s = SeeServedOnce(i, plan.prediction().requests_per_second(), &figures);
    if (s.ok()) s = SeeLatenciesOnce(i, plan.basis().requests_per_second(), &figures);
    if (s.ok()) *plan.mutable_simulated() = std::move(figures);
    return s;
  }

  // Simulates candidate `i`, as far as `figures` do not have it.
  absl::Status SeeServedOnce(size_t i, double rate, v1::SimulatedFigures* figures) const {
    if (figures->offered_requests_per_second() == rate) return absl::OkStatus();
    return SeeServed(simulated_, replicas_[i], rate, Requests(Seen::kServed), figures);
  }

  // The same.
  absl::Status SeeLatenciesOnce(size_t i, double rate, v1::SimulatedFigures* figures) const {
    if (figures->latency_requests_per_second() == rate) return absl::OkStatus();
    return SeeLatencies(simulated_, replicas_[i], rate, Requests(Seen::kLatencies), figures);
  }

  // The same for every candidate.
  int64_t Requests(Seen seen) const {
    return RequestsFor(simulated_, candidates_.front(), most_rate_, seen);
  }

  // Whether it promises enough to be clearly above the first, which was simulated.
  bool CouldBeat(const v1::DeploymentPlan& plan, const v1::SimulatedFigures& first) const {
    return HasObjectives(*question_.workload) || question_.goal == Goal::kPrice ||
           kMaxOfPrediction * plan.prediction().requests_per_second() >
               (1 + question_.clearly) * first.requests_per_second();
  }

  double ValueOf(const v1::SimulatedFigures& figures) const {
    double value = figures.requests_per_second();
    if (question_.goal == Goal::kPrice) {
      const double asked = question_.workload->requests_per_second;
      value = value >= kServes * asked ? asked : value;
    }
    return HasObjectives(*question_.workload) ? value * figures.attainment() : value;
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
  const SimulatedQuestion simulated_;
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
