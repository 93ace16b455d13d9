#include "scheduler/planner/planner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "scheduler/input/supported_devices.h"
#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/alternatives.h"
#include "scheduler/planner/attained_rate.h"
#include "scheduler/planner/plan_simulation.h"
#include "scheduler/planner/plan_writer.h"
#include "scheduler/planner/planning_problem.h"
#include "scheduler/planner/preferred_placement.h"
#include "scheduler/planner/refusal.h"
#include "scheduler/planner/simulated_judgement.h"
#include "scheduler/planner/survival.h"
#include "scheduler/search/best/split_placement.h"
#include "scheduler/search/layout/assemble.h"
#include "scheduler/search/searches.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr int kMaxBudgetRounds = 6;
constexpr double kBudgetStep = 0.999;  // of the budget that would just do
constexpr double kRounding = 1 + 1e-9;

class Planner {
 public:
  explicit Planner(PlanningProblem& planning) : planning_(planning) {}

  absl::StatusOr<v1::DeploymentPlan> Run() {
    absl::StatusOr<Search> search = options_.given_search;
    if (options_.require_split && !options_.given_search) {
      search = Search(SplitSearch);
    } else if (!options_.given_search) {
      search = FindSearch(options_.search);
      if (!search.ok()) return search.status();
      search = options_.survive_machine_loss ? SurvivingSearch(*std::move(search))
                                             : WithoutIdle(*std::move(search));
    }
    absl::StatusOr<Placement> placement = Found(*search);
    // Where none has KV for the longest request that may come, the best that has not.
    if (!Serves(placement) && std::exchange(problem_.options.longest_request_tokens, 0) > 0) {
      problem_.budget_usd_per_hour = graph_.budget_usd_per_hour();  // that spot prices lowered
      placement = Found(*search);
    }
    if (!Serves(placement)) {
      const bool says_why = options_.given_search || options_.require_split || planning_.spot();
      if (says_why && !placement.ok()) return WithLeftOut(placement.status());
      return WithLeftOut(WhyNoPlan(*search, problem_, placement.status(), input_));
    }
    absl::StatusOr<v1::DeploymentPlan> plan = Judged(*std::move(placement));
    if (plan.ok()) Attain(&*plan);
    return plan;
  }

 private:
  // What simulation attains of the promise; where it cannot say, the plan keeps the prediction.
  void Attain(v1::DeploymentPlan* plan) {
    if (options_.attain_requests <= 0 || !simulates_ || problem_.watch.Stopped()) return;
    problem_.watch.Report("which rate a simulation attains");
    AttainedQuestion question = {&graph_, &workload_, options_.goal, options_.attain_requests};
    question.watch = problem_.watch;
    const absl::Status seen = AddAttained(question, plan);
    if (seen.ok()) ShowAttained(plan);
    if (!seen.ok() && !absl::IsCancelled(seen))
      plan->add_notes()->set_simulation_error(std::string(seen.message()));
  }

  // Choices that take this plan say the rate of its head line.
  static void ShowAttained(v1::DeploymentPlan* plan) {
    if (plan->simulated().attained_seeds() == 0) return;
    const auto taken = std::find_if(plan->choices().begin(), plan->choices().end(),
                                    [](const v1::PlanChoice& one) { return one.taken(); });
    if (taken == plan->choices().end()) return;
    const double before = taken->requests_per_second();
    const double attained = plan->simulated().attained_requests_per_second();
    for (v1::PlanChoice& one : *plan->mutable_choices()) {
      const bool same =
          one.requests_per_second() == before && one.alone_seconds() == taken->alone_seconds();
      // None serves more than what is called the most.
      const bool most = one.preference() == v1::PLAN_PREFERENCE_THROUGHPUT;
      if (!same && !(most && one.requests_per_second() < attained)) continue;
      if (!same) {
        one = *taken;
        one.set_preference(v1::PLAN_PREFERENCE_THROUGHPUT);
        one.set_taken(false);
      }
      one.set_requests_per_second(attained);
      one.set_output_tokens_per_second(attained * plan->basis().output_tokens());
    }
  }

  // "All devices together" are those that workers run on.
  absl::Status WithLeftOut(const absl::Status& refused) const {
    if (planning_.left_out.empty() || !absl::IsResourceExhausted(refused)) return refused;
    return absl::ResourceExhaustedError(
        StrCat(StdView(refused.message()), "; without ", CountedKinds(planning_.left_out),
               ", on which no worker runs: ",
               input_.by_request ? "options.include_unsupported" : "--include-unsupported",
               " plans for them"));
  }

  static bool Serves(const absl::StatusOr<Placement>& placement) {
    return placement.ok() && placement->requests_per_second >= kMinRequestsPerSecond;
  }

  absl::StatusOr<Placement> Found(const Search& search) {
    return Prefers() ? Preferred(search) : Rented(search);
  }

  // A preference is one between plans that a search found for throughput.
  bool Prefers() const {
    const Preference& preference = options_.preference;
    const bool chooses = preference.weighs() || preference.simpler_within > 0 ||
                         preference.only_tpot_seconds ||
                         (preference.nearest && HasObjectives(workload_));
    return chooses && options_.goal == Goal::kThroughput && !options_.survive_machine_loss &&
           !options_.require_split && !planning_.spot();
  }

  // A latency that the workload limits is not weighed.
  absl::StatusOr<Placement> Preferred(const Search& search) {
    Preference preference = options_.preference;
    if (options_.given_search) {
      preference.simpler_within = 0;
      preference.prefer = v1::PLAN_PREFERENCE_BALANCED;
    }
    if (!preference.only_tpot_seconds) {
      preference.asked_requests_per_second = problem_.required_requests_per_second;
      preference.decode_steps = MomentsOf(problem_.samples).decode_steps;
    }
    for (const RequestClass& one : workload_.classes) {
      if (std::isfinite(one.limits.tpot_seconds)) preference.full_tpot_seconds = 0;
      if (std::isfinite(one.limits.ttft_seconds) || std::isfinite(one.limits.end_to_end_seconds))
        preference.full_ttft_seconds = 0;
    }
    absl::StatusOr<PreferredPlacement> preferred = SearchPreferred(planning_, preference, search);
    if (!preferred.ok()) return preferred.status();
    preferred_ = *std::move(preferred);
    problem_.options.max_tpot_seconds = preferred_->max_tpot_seconds;
    return preferred_->placement;
  }

  // Some searches count machines that may be spot one by one, at a mixed price. How many of them
  // are is a whole number: the budget is lowered until these are within it.
  absl::StatusOr<Placement> Rented(const Search& search) {
    absl::StatusOr<Placement> placement = search(problem_);
    const double bound = placement.ok() ? placement->upper_bound : 0;
    for (int round = 0; placement.ok() && round < kMaxBudgetRounds; ++round) {
      placement->upper_bound = bound;
      if (!planning_.spot() || options_.goal != Goal::kBudget || options_.given_search ||
          placement->usd_per_hour <= graph_.budget_usd_per_hour() * kRounding) {
        return placement;
      }
      problem_.budget_usd_per_hour *=
          kBudgetStep * graph_.budget_usd_per_hour() / placement->usd_per_hour;
      placement = search(problem_);
    }
    if (!placement.ok()) return placement;
    return absl::ResourceExhaustedError(
        absl::StrFormat("%s: no plan was found whose machines cost at most %.2f USD/h, spot "
                        "and on demand together",
                        input_.cluster_file, graph_.budget_usd_per_hour()));
  }

  void SplitEverywhere(const Placement& placement) {
    const bool best = options_.search.empty() || options_.search == PlannerOptions().search;
    if (!best || options_.given_search || options_.survive_machine_loss || placement.interrupted ||
        problem_.goal != Goal::kThroughput || !problem_.allow_split ||
        graph_.devices() > kProgramsUpTo) {
      return;
    }
    const bool everywhere = std::ranges::none_of(
        placement.replicas, [](const auto& replica) { return replica.role == Role::kBoth; });
    split_everywhere_ = everywhere ? placement : SplitPlacement(problem_);
    if (problem_.watch.Stopped()) split_everywhere_.reset();
  }

  absl::StatusOr<v1::DeploymentPlan> Checked(const Placement& placement) const {
    const WrittenContext context = {split_everywhere_ ? &*split_everywhere_ : nullptr,
                                    preferred_ ? preferred_->notes : std::vector<v1::Note>(),
                                    simulates_};
    v1::DeploymentPlan plan = WritePlan(planning_, context, placement);
    const absl::Status checked = CheckPlanOn(plan, input_.cluster, input_.catalogue);
    if (checked.ok()) return plan;
    return absl::InternalError(
        StrCat("the planner made a plan that plan_check refuses: ", StdView(checked.message())));
  }

  // The placement as a plan, or the one of its alternatives that the simulation prefers.
  absl::StatusOr<v1::DeploymentPlan> Judged(Placement placement) {
    SplitEverywhere(placement);
    std::vector<Placement> alternatives = std::exchange(placement.alternatives, {});
    simulates_ = Simulates(options_, DevicesUsed(placement), Splits(placement));
    if (preferred_) return WrittenPreferred(placement);
    absl::StatusOr<v1::DeploymentPlan> first = Checked(placement);
    if (!first.ok() || !simulates_) return first;
    if (placement.interrupted) return Unsimulated(*std::move(first));
    std::vector<v1::DeploymentPlan> plans = {*std::move(first)};
    for (Placement& alternative : alternatives) {
      if (problem_.watch.Stopped() || !(alternative.requests_per_second > 0)) continue;
      alternative.upper_bound = placement.upper_bound;
      alternative.shadow_prices = placement.shadow_prices;
      absl::StatusOr<v1::DeploymentPlan> plan = Checked(alternative);
      if (plan.ok()) plans.push_back(*std::move(plan));
    }
    JudgementQuestion question;
    question.graph = &graph_;
    question.workload = &workload_;
    question.goal = options_.goal;
    question.watch = problem_.watch;
    if (!question.watch.Stopped()) question.watch.Report("what it serves in a simulation");
    const absl::StatusOr<size_t> chosen = JudgeBySimulation(question, &plans);
    if (chosen.ok()) return std::move(plans[*chosen]);
    if (absl::IsCancelled(chosen.status())) return Unsimulated(std::move(plans.front()));
    plans.front().add_notes()->set_simulation_error(std::string(chosen.status().message()));
    return std::move(plans.front());
  }

  // Judged already.
  absl::StatusOr<v1::DeploymentPlan> WrittenPreferred(const Placement& placement) {
    const bool interrupted =
        simulates_ && (preferred_->interrupted_simulation || placement.interrupted);
    simulates_ = preferred_->simulated.has_value();
    absl::StatusOr<v1::DeploymentPlan> plan = Checked(placement);
    if (!plan.ok()) return plan;
    for (const v1::MissedLimit& one : preferred_->missed) *plan->add_missed_limits() = one;
    for (const v1::PlanChoice& one : preferred_->choices) *plan->add_choices() = one;
    if (interrupted) return Unsimulated(*std::move(plan));
    if (!preferred_->simulation_error.empty())
      plan->add_notes()->set_simulation_error(preferred_->simulation_error);
    if (preferred_->simulated) *plan->mutable_simulated() = *preferred_->simulated;
    return plan;
  }

  v1::DeploymentPlan Unsimulated(v1::DeploymentPlan plan) {
    plan.add_notes()->set_interrupted_simulation(true);
    simulates_ = false;
    v1::PlanningTerms& terms = *plan.mutable_assumptions()->mutable_planning();
    terms.set_simulated(false);
    terms.set_simulation_interrupted(true);
    return plan;
  }

  PlanningProblem& planning_;
  const PlannerInput& input_ = *planning_.input;
  const PlannerOptions& options_ = *planning_.options;
  const ClusterGraph& graph_ = planning_.graph;
  const WorkloadSamples& workload_ = planning_.workload;
  PlacementProblem& problem_ = planning_.problem;
  bool simulates_ = false;
  std::optional<Placement> split_everywhere_;
  std::optional<PreferredPlacement> preferred_;
};

}  // namespace

absl::StatusOr<v1::DeploymentPlan> MakePlan(const PlannerInput& input,
                                            const PlannerOptions& options) {
  const auto planning = ReadPlanningProblem(input, options);
  if (!planning.ok()) return planning.status();
  return Planner(**planning).Run();
}

}  // namespace tessera::scheduler
