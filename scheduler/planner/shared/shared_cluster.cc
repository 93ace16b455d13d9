#include "scheduler/planner/shared/shared_cluster.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/report/bound_text.h"
#include "scheduler/planner/report/choice_text.h"
#include "scheduler/planner/shared/deal.h"
#include "scheduler/planner/shared/shared_bound.h"
#include "scheduler/planner/shared/shared_choices.h"
#include "scheduler/search/layout/assemble.h"
#include "scheduler/search/searches.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kOverload = 1 + 1e-6;

absl::Status CheckAsked(const std::vector<PlannerInput>& inputs, const PlannerOptions& options) {
  if (inputs.size() < 2)
    return absl::InvalidArgumentError("sharing a cluster needs two models or more");
  if (options.goal != Goal::kThroughput) {
    return absl::InvalidArgumentError(
        "--objective: several models share a cluster for throughput only; plan for goodput, a "
        "price or a "
        "budget model by model");
  }
  if (options.given_search)
    return absl::InvalidArgumentError("--layout: is for one model; plan the models one by one");
  if (options.survive_machine_loss) {
    return absl::InvalidArgumentError(
        "--survive-machine-loss: is not planned for when several models share a cluster");
  }
  const auto rated = std::count_if(inputs.begin(), inputs.end(), [](const PlannerInput& input) {
    return input.workload.requests_per_second() > 0;
  });
  if (rated != 0 && rated != static_cast<int64_t>(inputs.size())) {
    return absl::InvalidArgumentError(
        "requests_per_second: give a rate for every model that shares the cluster, or for none");
  }
  return absl::OkStatus();
}

// Makes all plans: each model's planner asks for a placement, and the innermost, when all problems
// are known, deals.
class Sharer {
 public:
  Sharer(const std::vector<PlannerInput>& inputs, const PlannerOptions& options,
         const SharingOptions& sharing)
      : inputs_(inputs), options_(options), sharing_(sharing), plans_(inputs.size()) {}

  absl::StatusOr<SharedPlans> Run() {
    const absl::StatusOr<Search> search = FindSearch(options_.search);
    if (!search.ok()) return search.status();
    search_ = *search;
    if (absl::Status s = Plan(0); !s.ok()) return s;
    SharedPlans shared;
    shared.of_asked = Rated();
    shared.plans = std::move(plans_);
    shared.plain = !chosen_.empty();
    shared.weights = weights_;
    shared.theta = CommonPart(shared.plans, weights_, &overload_);
    for (v1::DeploymentPlan& plan : shared.plans)
      plan.mutable_alternatives()->Assign(choices_.begin(), choices_.end());
    if (bound_.theta > 0) Bound(&shared);
    shared.text = Text(shared);
    return shared;
  }

 private:
  bool Rated() const { return inputs_.front().workload.requests_per_second() > 0; }

  std::string NameOf(size_t i) const { return inputs_[i].model.name(); }

  absl::Status Plan(size_t i) {
    PlannerOptions options = options_;
    options.preference = {};  // the deal counts the most that each part serves
    options.given_search = [this, i](const PlacementProblem& problem) -> absl::StatusOr<Placement> {
      problems_.push_back(&problem);
      if (absl::Status s = i + 1 < inputs_.size() ? Plan(i + 1) : MakeDeal(); !s.ok()) return s;
      return placements_[i];
    };
    PlannerInput input = inputs_[i];
    input.cluster = inputs_.front().cluster;
    input.catalogue = inputs_.front().catalogue;
    absl::StatusOr<v1::DeploymentPlan> plan = MakePlan(input, options);
    if (!plan.ok()) return plan.status();
    plans_[i] = *std::move(plan);
    // The planner was given a placement; where it comes from, and who has the other devices, is
    // known here.
    auto* notes = plans_[i].mutable_notes();
    notes->erase(std::remove_if(notes->begin(), notes->end(),
                                [](const v1::Note& note) { return note.has_idle(); }),
                 notes->end());
    v1::PlanningTerms& terms = *plans_[i].mutable_assumptions()->mutable_planning();
    terms.set_search(options_.search.empty() ? "best" : options_.search);
    terms.set_dealt(true);
    return absl::OkStatus();
  }

  absl::Status MakeDeal() {
    // The bound above the placement of a part is not computed.
    std::vector<PlacementProblem> unbounded;
    std::vector<const PlacementProblem*> problems;
    for (const PlacementProblem* problem : problems_) unbounded.push_back(*problem);
    for (PlacementProblem& problem : unbounded) {
      problem.bound = false;
      problems.push_back(&problem);
    }
    Dealer dealer(problems, search_, sharing_);
    for (size_t i = 0; i < problems.size(); ++i) {
      const absl::StatusOr<Placement> alone = dealer.Alone(i);
      if (!alone.ok()) return options_.watch.Stopped() ? Interrupted() : alone.status();
      alone_.push_back(*alone);
    }
    weights_ = sharing_.weights;
    for (size_t i = weights_.size(); i < problems.size(); ++i) {
      weights_.push_back(Rated() ? inputs_[i].workload.requests_per_second()
                                 : alone_[i].requests_per_second);
    }
    absl::StatusOr<Deal> deal = dealer.Run(weights_);
    if (!deal.ok()) return options_.watch.Stopped() ? Interrupted() : deal.status();
    deal_ = *std::move(deal);
    interrupted_ = options_.watch.Stopped();
    if (sharing_.choices) TryChoices(problems, &dealer);
    if (sharing_.bound && !options_.watch.Stopped()) {
      options_.watch.Report("how much any deal could serve");
      bound_ = BoundShared(problems, weights_);
    }
    return PlaceDeal();
  }

  static absl::Status Interrupted() {
    return absl::ResourceExhaustedError(
        "interrupted before a deal of the devices was found; give it more time");
  }

  // Where the deal is a heuristic one of them may be better.
  void TryChoices(const std::vector<const PlacementProblem*>& problems, Dealer* dealer) {
    const SharingQuestion question = {*dealer, problems, weights_, alone_, Rated()};
    std::vector<OtherDeal> others = OtherDeals(question, deal_);
    size_t best = others.size();
    for (size_t i = 0; i < others.size(); ++i) {
      if (others[i].deal.placements.empty() || !dealer->Better(others[i].deal, deal_)) continue;
      deal_ = others[i].deal;
      best = i;
    }
    if (best < others.size()) {
      chosen_ = ChoiceName(others[best].choice);
      others.erase(others.begin() + static_cast<long>(best));
    }
    choices_ = OtherChoices(question, deal_, others);
  }

  absl::Status PlaceDeal() {
    std::vector<int> used(problems_.front()->graph->pools().size(), 0);
    for (size_t i = 0; i < problems_.size(); ++i) {
      absl::StatusOr<Placement> placement = Assemble(*problems_[i], deal_.placements[i].replicas);
      if (!placement.ok()) return placement.status();
      // Every model's devices come after those of the models before it.
      for (PlacedReplica& replica : placement->replicas) {
        for (size_t j = 0; j < replica.stages.size(); ++j) {
          for (int& index : replica.device_index[j])
            index = used[static_cast<size_t>(replica.stages[j].pool)]++;
        }
      }
      placement->notes = {Why(i)};
      placement->interrupted = interrupted_;
      placements_.push_back(*std::move(placement));
    }
    for (size_t p = 0; p < used.size(); ++p) {
      if (used[p] > problems_.front()->graph->pools()[p].count)
        return absl::InternalError("a deal uses devices twice");
    }
    DeviceCounts idle = AllDevices(*problems_.front());
    for (size_t p = 0; p < used.size(); ++p) idle[p] -= used[p];
    idle_ = KindCountsText(KindsOf(*problems_.front()->graph, idle));
    worths_ = Worths();  // while there is a graph
    return absl::OkStatus();
  }

  v1::Note Why(size_t i) const {
    v1::Note note;
    v1::SharedWith& shared = *note.mutable_shared_with();
    for (size_t j = 0; j < inputs_.size(); ++j) {
      if (j != i) shared.add_models(NameOf(j));
    }
    shared.set_alone_requests_per_second(alone_[i].requests_per_second);
    return note;
  }

  std::string Devices(const v1::DeploymentPlan& plan) const {
    std::map<std::string, int> kinds;
    for (const v1::Replica& replica : plan.replicas()) {
      for (const v1::Stage& stage : replica.stages()) {
        for (const v1::PlannedWorker& worker : stage.workers()) ++kinds[worker.kind()];
      }
    }
    std::vector<std::string> parts;
    for (const auto& [kind, count] : kinds) parts.push_back(StrCat(count, " ", kind));
    return absl::StrJoin(parts, ", ");
  }

  std::string Text(const SharedPlans& shared) const {
    std::string out = absl::StrFormat(
        "%d models share the cluster; each serves %.3f times %s, or more\n"
        "  %-24s %10s %10s %8s %9s  %s\n",
        shared.plans.size(), shared.theta,
        shared.of_asked ? "the rate that is asked of it"
                        : "what it would serve alone (no rates were given)",
        "model", shared.of_asked ? "asked" : "alone", "serves", "times", "replicas", "devices");
    size_t least = 0;
    double lowest = 0;
    for (size_t i = 0; i < shared.plans.size(); ++i) {
      const v1::DeploymentPlan& plan = shared.plans[i];
      const double part = plan.prediction().requests_per_second() / weights_[i];
      if (i == 0 || part < lowest) {
        lowest = part;
        least = i;
      }
      absl::StrAppendFormat(&out, "  %-24s %10.3f %10.3f %8.3f %9d  %s\n", NameOf(i), weights_[i],
                            plan.prediction().requests_per_second(), part, plan.replicas_size(),
                            Devices(plan));
    }
    out += StrCat("  ", NameOf(least), " limits the deal: ", How(), "\n");
    if (interrupted_) out += "  warning: interrupted: the best deal found until then\n";
    if (shared.upper_bound > 0) out += StrCat("  ", SharedBoundText(BoundOf(shared)), "\n");
    if (!overload_.empty()) out += StrCat("  ", overload_, "\n");
    if (!idle_.empty()) out += StrCat("  used by no model: ", idle_, "\n");
    return out;
  }

  // In the place of what a plan says that was given its placement.
  void Bound(SharedPlans* shared) const {
    shared->upper_bound = bound_.theta;
    shared->device_worths = worths_;
    for (v1::DeploymentPlan& plan : shared->plans)
      *plan.mutable_certificate()->mutable_shared_bound() = BoundOf(*shared);
  }

  // By kind, where it is worth most.
  std::map<std::string, double> Worths() const {
    std::map<std::string, double> worths;
    const std::vector<DevicePool>& pools = problems_.front()->graph->pools();
    for (size_t p = 0; p < bound_.device_prices.size(); ++p) {
      double& worth = worths[pools[p].spec->kind];
      worth = std::max(worth, bound_.device_prices[p]);
    }
    return worths;
  }

  static v1::SharedBound BoundOf(const SharedPlans& shared) {
    v1::SharedBound bound;
    bound.set_part(shared.theta);
    bound.set_upper_bound(shared.upper_bound);
    bound.set_unit(ThetaUnit(shared.of_asked));
    return bound;
  }

  std::string How() const {
    if (deal_.exact && !interrupted_)
      return "every deal of the devices was tried, each part planned by the search";
    return StrCat("devices were dealt by a program over parts of the cluster and moves (heuristic",
                  bound_.theta > 0 ? ")" : ", no bound)",
                  chosen_.empty() ? "" : StrCat("; better than the deals of these was ", chosen_));
  }

  const std::vector<PlannerInput>& inputs_;
  const PlannerOptions& options_;
  const SharingOptions& sharing_;
  Search search_;
  std::vector<const PlacementProblem*> problems_;
  std::vector<Placement> alone_;
  std::vector<double> weights_;
  Deal deal_;
  SharedBound bound_;
  std::map<std::string, double> worths_;
  bool interrupted_ = false;
  std::string chosen_;  // of the other choices, where it is the deal
  std::vector<v1::OtherChoice> choices_;
  std::vector<Placement> placements_;
  std::vector<v1::DeploymentPlan> plans_;
  std::string overload_, idle_;
};

}  // namespace

v1::ValueUnit ThetaUnit(bool of_asked) {
  return of_asked ? v1::VALUE_UNIT_TIMES_ASKED : v1::VALUE_UNIT_TIMES_ALONE;
}

double CommonPart(const std::vector<v1::DeploymentPlan>& plans, const std::vector<double>& weights,
                  std::string* overload) {
  double theta = plans.empty() ? 0 : plans.front().prediction().requests_per_second() / weights[0];
  std::map<std::pair<std::string, std::string>, std::pair<double, double>> loads;
  for (size_t i = 0; i < plans.size(); ++i) {
    theta = std::min(theta, plans[i].prediction().requests_per_second() / weights[i]);
    for (const v1::LinkLoad& link : plans[i].links()) {
      auto& [bytes, capacity] = loads[{link.from(), link.to()}];
      bytes += link.bytes_per_second();
      capacity = link.capacity_bytes_per_second();
    }
  }
  double worst = kOverload;
  for (const auto& [ends, load] : loads) {
    if (load.first <= load.second * worst) continue;
    worst = load.first / load.second;
    *overload = absl::StrFormat(
        "%s carries %.0f %% of the load that the plans send over it together: the common part of "
        "the rates (theta) is reduced accordingly",
        ends.second.empty() ? StrCat("the uplink of ", ends.first)
                            : StrCat("the link ", ends.first, " -> ", ends.second),
        100 / worst);
  }
  return worst > kOverload ? theta / worst : theta;
}

absl::StatusOr<SharedPlans> PlanShared(const std::vector<PlannerInput>& inputs,
                                       const PlannerOptions& options,
                                       const SharingOptions& sharing) {
  if (absl::Status s = CheckAsked(inputs, options); !s.ok()) return s;
  return Sharer(inputs, options, sharing).Run();
}

}  // namespace tessera::scheduler
