#include "scheduler/planner/preferred_placement.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/candidates.h"
#include "scheduler/planner/giving_way.h"
#include "scheduler/planner/missed_limits.h"
#include "scheduler/planner/plan_simulation.h"
#include "scheduler/planner/plan_writer.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kWorthSaying = 5e-4;
constexpr double kRounding = 1 - 1e-9;
constexpr double kAbove = 1.001;  // of a rate, from which another placement is another plan
constexpr double kSooner = 0.98;  // TPOT of a simulation, beside what others' were of prediction

constexpr int kRoughAbove = 64;           // devices, where one close search has to do
constexpr int kSearchedAgainUpTo = 1000;  // devices, for a bound at the very limit of the choice

// How many are simulated, by devices.
size_t FinalistsFor(int devices) {
  constexpr int kFew = 8, kSome = 32, kMany = 64;
  return devices <= kFew ? 8 : devices <= kSome ? 4 : devices <= kMany ? 3 : 2;
}

struct Finalist {
  CandidatePlacement candidate;
  Choosable choosable;  // by simulation, where it was simulated
  bool aside = false;  // for another preference: a balanced choice takes it if it is clearly better
  bool brief = false;  // few requests are simulated, where only its row is shown
  // What a simulation serves of its promise is too little: it was not simulated further.
  bool refuted = false;
  v1::SimulatedFigures simulated;
};

class Preferring {
 public:
  Preferring(const PlanningProblem& planning, const Preference& preference, const Search& search)
      : planning_(planning),
        options_(*planning.options),
        problem_(planning.problem),
        preference_(preference),
        prefer_(preference.prefer),
        search_(search),
        simulation_{&planning.graph, &planning.workload} {
    simulation_.watch = problem_.watch;
    preference_.prefer = v1::PLAN_PREFERENCE_BALANCED;  // so are finalists picked
  }

  absl::StatusOr<PreferredPlacement> Run() {
    const bool best = options_.search.empty() || options_.search == PlannerOptions().search;
    CandidateOptions how;
    how.max_searches = best || options_.given_search ? 0 : 1;  // others take long
    // Bounds make a search look closer, which many devices have no time for under every limit.
    how.bound = true;
    how.rough_first = best && balanced() && !options_.given_search &&
                      !preference_.only_tpot_seconds && problem_.graph->devices() > kRoughAbove;
    how.plain = !options_.given_search && preference_.nearest && HasObjectives(planning_.workload);
    how.tell_most = !options_.given_search;
    how.mixed = best && !options_.given_search;
    const bool offers = !options_.given_search && !preference_.only_tpot_seconds;
    how.fastest = offers || prefer_ == v1::PLAN_PREFERENCE_LATENCY;
    absl::StatusOr<Candidates> found = FindCandidates(problem_, preference_, search_, how);
    if (!found.ok()) return found.status();
    found_ = *std::move(found);
    preference_.full_ttft_seconds = found_.full_ttft_seconds;
    const Placement& first = found_.placements.front().placement;
    simulates_ = Simulates(options_, DevicesUsed(first), Splits(first));
    if (absl::Status s = PickFinalists(); !s.ok()) return s;
    if (offers || !balanced()) {
      if (absl::Status s = AdmitOthers(); !s.ok()) return s;
    }
    balanced_ = GivenWay(ChooseFor(v1::PLAN_PREFERENCE_BALANCED));
    Choice choice = ChooseFinalist();
    if (!Bounded(&choice)) Reuse(finalists_[choice.chosen].candidate.max_tpot_seconds);
    PreferredPlacement answer = Answer(choice);
    if (offers) AddChoices(choice.chosen, &answer.choices);
    return answer;
  }

 private:
  bool balanced() const { return prefer_ == v1::PLAN_PREFERENCE_BALANCED; }

  PlacementProblem Under(const CandidatePlacement& candidate) const {
    return UnderTpot(problem_, candidate.max_tpot_seconds);
  }

  // The best by prediction, in turn with and without the formula's TTFT, which simulation judges;
  // then what is simple, or serves on after a loss, and not far from the best.
  std::vector<size_t> Order() const {
    const std::vector<CandidatePlacement>& all = found_.placements;
    std::vector<size_t> by_value(all.size());
    for (size_t i = 0; i < all.size(); ++i) by_value[i] = i;
    std::vector<size_t> without_ttft = by_value;
    const auto rough = [&](size_t i) {
      PlanFigures figures = all[i].predicted;
      figures.ttft_seconds = 0;
      std::erase_if(figures.missed,
                    [](const auto& one) { return one.limit() != v1::LATENCY_LIMIT_TPOT; });
      return std::pair(figures.missed.empty(), ValueOf(figures, preference_));
    };
    std::stable_sort(without_ttft.begin(), without_ttft.end(),
                     [&](size_t a, size_t b) { return rough(a) > rough(b); });
    std::vector<Choosable> choosable;
    for (const CandidatePlacement& one : all) choosable.push_back(ChoosableOf(one));
    std::vector<size_t> order = {Choose(choosable, preference_).chosen, 0};
    // Simulation refutes most what plans promise that split.
    const auto whole = std::find_if(all.begin(), all.end(),
                                    [](const auto& one) { return !Splits(one.placement); });
    if (whole != all.end()) order.push_back(static_cast<size_t>(whole - all.begin()));
    for (size_t i = 0; i < all.size(); ++i) {
      order.push_back(by_value[i]);
      order.push_back(without_ttft[i]);
    }
    std::set<size_t> seen;
    std::erase_if(order, [&](size_t i) { return !seen.insert(i).second; });
    return order;
  }

  Choosable ChoosableOf(const CandidatePlacement& one) const {
    return {one.predicted, MaxStages(one.placement),
            preference_.simpler_within > 0 ? LeftAfterLoss(Under(one), one.placement) : 0};
  }

  absl::Status PickFinalists() {
    const size_t most =
        simulates_ ? FinalistsFor(problem_.graph->devices()) : found_.placements.size();
    absl::Status refused;
    for (const size_t i : Order()) {
      const bool enough = finalists_.size() + refuted_ >= most;
      if (enough || (problem_.watch.Stopped() && !finalists_.empty())) break;
      const absl::Status added = Admit(found_.placements[i]);
      if (!added.ok()) refused = added;
    }
    return finalists_.empty() ? refused : absl::OkStatus();
  }

  // What is soonest for one user, and what serves most, whatever a balanced choice thinks of them.
  absl::Status AdmitOthers() {
    std::vector<const CandidatePlacement*> others;
    if (found_.fastest) others.push_back(&*found_.fastest);
    const CandidatePlacement* most = &*std::max_element(
        found_.placements.begin(), found_.placements.end(), [](const auto& a, const auto& b) {
          return a.placement.requests_per_second < b.placement.requests_per_second;
        });
    const double rate = most->placement.requests_per_second;
    if (found_.most && found_.most->placement.requests_per_second > rate) most = &*found_.most;
    others.push_back(most);
    for (const CandidatePlacement* one : others) {
      if (problem_.watch.Stopped()) break;
      const bool known =
          std::any_of(finalists_.begin(), finalists_.end(), [&](const Finalist& finalist) {
            return finalist.candidate.max_tpot_seconds >= one->max_tpot_seconds &&
                   LayoutKey(finalist.candidate.placement) == LayoutKey(one->placement);
          });
      if (known) continue;
      if (absl::Status s = Admit(*one, true); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

  // Into the finalists, simulated where plans are; `aside`: whatever it promises. Others only as
  // long as they can still be worth taking.
  absl::Status Admit(const CandidatePlacement& candidate, bool aside = false) {
    Finalist finalist = {candidate, ChoosableOf(candidate), aside, aside && balanced(), false, {}};
    Choosable hoped = finalist.choosable;
    hoped.figures.tpot_seconds *= tpot_of_prediction_ * kSooner;
    if (!simulates_ || !(aside || Promising(hoped))) {
      if (!simulates_) finalists_.push_back(std::move(finalist));
      return absl::OkStatus();
    }
    const v1::DeploymentPlan plan = WriteBarePlan(planning_, Under(candidate), candidate.placement);
    const absl::Status checked =
        CheckPlanOn(plan, planning_.input->cluster, planning_.input->catalogue);
    if (!checked.ok()) {
      return absl::InternalError(
          StrCat("the planner made a plan that plan_check refuses: ", StdView(checked.message())));
    }
    if (unsimulated_.ok()) unsimulated_ = Simulate(plan, &finalist);
    if (finalist.refuted) {
      ++refuted_;
    } else {
      finalists_.push_back(std::move(finalist));
    }
    return absl::OkStatus();
  }

  // Whether it can be worth taking beside those so far, were its waits short: worth more than the
  // best, or a little less where it is simpler. A simulation serves no more than is promised.
  bool Promising(Choosable one) const {
    if (finalists_.empty()) return true;
    PlanFigures& figures = one.figures;
    figures.ttft_seconds = 0;
    std::erase_if(figures.missed,
                  [](const auto& limit) { return limit.limit() != v1::LATENCY_LIMIT_TPOT; });
    double best = 0;
    int fewest_stages = std::numeric_limits<int>::max();
    bool all_serve_on = true;
    for (const Finalist& other : finalists_) {
      const bool sustains = Sustains(other.choosable.figures, preference_);
      if (sustains && !Sustains(figures, preference_)) return false;
      if (sustains != Sustains(figures, preference_)) continue;
      best = std::max(best, ValueOf(other.choosable.figures, preference_));
      fewest_stages = std::min(fewest_stages, other.choosable.stages);
      all_serve_on = all_serve_on && ServesOn(other.choosable);
    }
    const bool simpler = one.stages < fewest_stages || (!all_serve_on && ServesOn(one));
    return ValueOf(figures, preference_) >= best * (simpler ? 1 - preference_.simpler_within : 1);
  }

  absl::Status Simulate(const v1::DeploymentPlan& plan, Finalist* finalist) {
    problem_.watch.Report("what it serves in a simulation");
    const absl::StatusOr<PlanReplicas> replicas = ReplicasOfPlan(plan, planning_.graph, {});
    if (!replicas.ok()) return replicas.status();
    PlanFigures& figures = finalist->choosable.figures;
    v1::SimulatedFigures& seen = finalist->simulated;
    const double promised = plan.prediction().requests_per_second();
    SimulatedQuestion question = simulation_;
    if (finalist->brief) {
      question.least_requests = 1500;
      question.enough_requests = 2000;
      question.max_requests = 6000;
    }
    absl::Status s = SeeServed(question, *replicas, promised,
                               RequestsFor(question, plan, promised, Seen::kServed), &seen);
    if (!s.ok()) return s;
    figures.requests_per_second = std::min(promised, seen.requests_per_second());
    Choosable served = finalist->choosable;
    served.figures.tpot_seconds *= tpot_of_prediction_ * kSooner;
    finalist->refuted = !finalist->aside && !Promising(served);
    if (finalist->refuted) return s;
    const double rate =
        ToldLoad(problem_, figures.requests_per_second) * figures.requests_per_second;
    std::vector<v1::MissedLimit> missed;
    s = SeeLatencies(question, *replicas, rate, RequestsFor(question, plan, rate, Seen::kLatencies),
                     &seen, &missed);
    if (!s.ok()) return s;
    const double predicted = figures.tpot_seconds;
    figures.ttft_seconds = seen.time_to_first_token_mean_seconds();
    figures.tpot_seconds = seen.time_per_output_token_mean_seconds();
    if (predicted > 0)
      tpot_of_prediction_ = std::min(tpot_of_prediction_, figures.tpot_seconds / predicted);
    for (const v1::MissedLimit& one : figures.missed) {
      if (one.limit() == v1::LATENCY_LIMIT_TPOT) missed.push_back(one);
    }
    MissedLimits all;
    for (const v1::MissedLimit& one : missed)
      all.Add(one.limit(), one.limit_seconds(),
              one.seconds() > 0 ? one.seconds() : std::numeric_limits<double>::infinity());
    all.Add(v1::LATENCY_LIMIT_TPOT, problem_.options.max_tpot_seconds, figures.tpot_seconds);
    figures.missed = all.all();
    return absl::OkStatus();
  }

  Choice ChooseFinalist() const { return balanced() ? balanced_ : ChooseFor(prefer_); }

  // What a balanced choice gives way to, or itself. Where a rate is asked for, all are judged at
  // that.
  Choice GivenWay(const Choice& choice) {
    if (!simulates_ || !unsimulated_.ok() || preference_.asked_requests_per_second > 0)
      return choice;
    SimulatedPlans plans;
    plans.count = finalists_.size();
    plans.known = [&](size_t i) -> const Choosable& { return finalists_[i].choosable; };
    plans.at_rate = [&](size_t i, double rate) { return LatenciesAt(rate, finalists_[i]); };
    plans.see_in_full = [&](size_t i) { return SeenInFull(&finalists_[i]); };
    const double rate = plans.known(choice.chosen).figures.requests_per_second;
    const size_t to = GivenWayTo(plans, choice.chosen, ToldLoad(problem_, rate), preference_);
    return to == choice.chosen ? choice : Choice{to, to};
  }

  // Simulates again what was simulated briefly. False: that did not end.
  bool SeenInFull(Finalist* finalist) {
    if (!finalist->brief) return true;
    const CandidatePlacement& one = finalist->candidate;
    Finalist full = {one, ChoosableOf(one), finalist->aside, false, false, {}};
    const v1::DeploymentPlan plan = WriteBarePlan(planning_, Under(one), one.placement);
    if (!Simulate(plan, &full).ok()) return false;
    *finalist = std::move(full);
    return true;
  }

  std::optional<PlanFigures> LatenciesAt(double rate, const Finalist& finalist) const {
    const CandidatePlacement& one = finalist.candidate;
    const v1::DeploymentPlan plan = WriteBarePlan(planning_, Under(one), one.placement);
    const absl::StatusOr<PlanReplicas> replicas = ReplicasOfPlan(plan, planning_.graph, {});
    if (!replicas.ok()) return std::nullopt;
    v1::SimulatedFigures seen;
    const absl::Status s =
        SeeLatencies(simulation_, *replicas, rate,
                     RequestsFor(simulation_, plan, rate, Seen::kLatencies), &seen, nullptr);
    if (!s.ok()) return std::nullopt;
    PlanFigures figures;
    figures.ttft_seconds = seen.time_to_first_token_mean_seconds();
    figures.tpot_seconds = seen.time_per_output_token_mean_seconds();
    return figures;
  }

  Choice ChooseFor(v1::PlanPreference prefer) const {
    Preference preference = preference_;
    preference.prefer = prefer;
    const bool all = prefer != v1::PLAN_PREFERENCE_BALANCED;
    if (all) preference.simpler_within = 0;
    std::vector<Choosable> plans;
    std::vector<size_t> index;
    const auto add = [&](size_t i) {
      plans.push_back(finalists_[i].choosable);
      index.push_back(i);
    };
    for (size_t i = 0; i < finalists_.size(); ++i) {
      if (!finalists_[i].aside || all) add(i);
    }
    if (!all) {
      const Choosable best = plans[Choose(plans, preference).best];
      for (size_t i = 0; i < finalists_.size(); ++i) {
        if (finalists_[i].aside && Outdoes(finalists_[i].choosable, best, preference)) add(i);
      }
    }
    const Choice choice = Choose(plans, preference);
    return {index[choice.best], index[choice.chosen]};
  }

  // Clearly: simulations of what stands aside are shorter.
  static bool Outdoes(Choosable aside, const Choosable& best, const Preference& preference) {
    constexpr double kClearly = 1.02;
    if (aside.figures.missed.empty() != best.figures.missed.empty()) return false;
    aside.figures.requests_per_second /= kClearly;
    aside.figures.ttft_seconds *= kClearly;
    aside.figures.tpot_seconds *= kClearly;
    return Choose({best, aside}, preference).best == 1;
  }

  void AddChoices(size_t taken, std::vector<v1::PlanChoice>* choices) const {
    for (const v1::PlanPreference prefer :
         {v1::PLAN_PREFERENCE_LATENCY, v1::PLAN_PREFERENCE_BALANCED,
          v1::PLAN_PREFERENCE_THROUGHPUT}) {
      const bool is_taken = prefer == prefer_;
      const Choice other = prefer == v1::PLAN_PREFERENCE_BALANCED ? balanced_ : ChooseFor(prefer);
      const Finalist& one = finalists_[is_taken ? taken : other.chosen];
      v1::PlanChoice& choice = choices->emplace_back();
      const PlanFigures& figures = one.choosable.figures;
      choice.set_preference(prefer);
      choice.set_taken(is_taken);
      choice.set_requests_per_second(figures.requests_per_second);
      choice.set_output_tokens_per_second(figures.requests_per_second *
                                          MomentsOf(problem_.samples).output_tokens);
      if (std::isfinite(figures.ttft_seconds))
        choice.set_time_to_first_token_seconds(figures.ttft_seconds);
      choice.set_time_per_output_token_seconds(figures.tpot_seconds);
      choice.set_alone_seconds(figures.alone_seconds);
      choice.set_devices(DevicesUsed(one.candidate.placement));
      choice.set_usd_per_hour(one.candidate.placement.usd_per_hour);
    }
  }

  // Searches once more at the limit of the choice, for bound and prices; what it finds that serves
  // more there takes part. False: nobody asks for a bound.
  bool Bounded(Choice* choice) {
    const CandidatePlacement& chosen = finalists_[choice->chosen].candidate;
    const double limit = chosen.max_tpot_seconds;
    const bool many = problem_.graph->devices() > kSearchedAgainUpTo;
    const bool known =
        std::any_of(found_.searched.begin(), found_.searched.end(), [&](const auto& one) {
          const bool applies = many ? one.max_tpot_seconds >= limit : one.max_tpot_seconds == limit;
          return applies && one.placement.upper_bound > 0;
        });
    if (known || options_.given_search || preference_.only_tpot_seconds || !balanced() ||
        problem_.watch.Stopped() ||
        (!options_.search.empty() && options_.search != PlannerOptions().search))
      return false;
    absl::StatusOr<Placement> found = search_(UnderTpot(problem_, limit));
    if (!found.ok()) return false;
    about_ = *found;
    if (found->requests_per_second <= kAbove * chosen.placement.requests_per_second) return true;
    CandidatePlacement more = {*std::move(found), limit, {}};
    more.placement.alternatives.clear();
    more.predicted =
        PredictedFigures(Under(more), more.placement, problem_.options.max_tpot_seconds);
    const size_t before = finalists_.size();
    if (!Admit(more).ok() || finalists_.size() == before) return true;
    balanced_ = GivenWay(ChooseFor(v1::PLAN_PREFERENCE_BALANCED));
    const Choice again = ChooseFinalist();
    if (finalists_[again.chosen].candidate.max_tpot_seconds == limit) *choice = again;
    return true;
  }

  // What a search under that limit, or the next one above it, said.
  void Reuse(double limit) {
    for (const CandidatePlacement& one : found_.searched) {
      if (one.max_tpot_seconds >= limit && (!about_ || one.max_tpot_seconds <= about_limit_)) {
        about_ = one.placement;
        about_limit_ = one.max_tpot_seconds;
      }
    }
    if (!about_) about_.emplace();
    about_->proved = about_->proved && about_limit_ == limit;
    // Bounds are of rates.
    if (prefer_ == v1::PLAN_PREFERENCE_LATENCY) {
      about_->upper_bound = 0;
      about_->proved = false;
    }
  }

  PreferredPlacement Answer(const Choice& choice) {
    const Finalist& chosen = finalists_[choice.chosen];
    PreferredPlacement out;
    out.placement = chosen.candidate.placement;
    out.max_tpot_seconds = chosen.candidate.max_tpot_seconds;
    const double rate = out.placement.requests_per_second;
    out.placement.upper_bound = BoundOver(about_->upper_bound, rate);
    out.placement.proved = about_->proved && rate >= about_->requests_per_second * kRounding;
    if (HasMixedStage(out.placement)) {  // bounds are of stages of one kind of device
      out.placement.proved = false;
      out.placement.upper_bound = 0;
    }
    out.placement.interrupted = about_->interrupted || problem_.watch.Stopped();
    out.placement.notes = about_->notes;
    out.placement.shadow_prices = about_->shadow_prices;
    out.placement.evaluations = about_->evaluations;
    out.missed = chosen.choosable.figures.missed;
    const bool at_rate = preference_.asked_requests_per_second > 0 &&
                         Sustains(chosen.choosable.figures, preference_);
    if (balanced() && !at_rate) {  // else the most is not what was sought
      SayCostOfLimits(chosen, &out.notes);
      SaySimplicity(choice, &out.notes);
    }
    if (!simulates_) return out;
    if (absl::IsCancelled(unsimulated_)) {
      out.interrupted_simulation = true;
    } else if (!unsimulated_.ok()) {
      out.simulation_error = std::string(unsimulated_.message());
    } else {
      out.simulated = chosen.simulated;
    }
    return out;
  }

  void SayCostOfLimits(const Finalist& chosen, std::vector<v1::Note>* notes) const {
    double ttft = std::numeric_limits<double>::infinity();
    for (const RequestClass& one : problem_.classes) ttft = std::min(ttft, one.limits.ttft_seconds);
    const double tpot = problem_.options.max_tpot_seconds;
    const bool limits = std::isfinite(tpot) || std::isfinite(ttft);
    if (!found_.most || preference_.only_tpot_seconds || (!limits && !preference_.weighs())) return;
    const CandidatePlacement& most = *found_.most;
    v1::LimitsCost& cost = *notes->emplace_back().mutable_limits_cost();
    if (std::isfinite(tpot)) cost.set_tpot_seconds(tpot);
    if (std::isfinite(ttft)) cost.set_ttft_seconds(ttft);
    cost.set_full_tpot_seconds(preference_.full_tpot_seconds);
    cost.set_full_ttft_seconds(preference_.full_ttft_seconds);
    const double rate = chosen.candidate.placement.requests_per_second;
    const double lost = 1 - rate / most.placement.requests_per_second;
    if (lost < kWorthSaying) return;
    cost.set_lost_share(lost);
    cost.set_requests_per_second(most.placement.requests_per_second);
    cost.set_other_tpot_seconds(most.predicted.tpot_seconds);
    if (std::isfinite(most.predicted.ttft_seconds))
      cost.set_other_ttft_seconds(most.predicted.ttft_seconds);
  }

  void SaySimplicity(const Choice& choice, std::vector<v1::Note>* notes) const {
    if (choice.chosen == choice.best) return;
    const Finalist &chosen = finalists_[choice.chosen], &best = finalists_[choice.best];
    const double cost = 1 - ValueOf(chosen.choosable.figures, preference_) /
                                ValueOf(best.choosable.figures, preference_);
    if (cost < kWorthSaying) return;
    v1::SimplicityCost& simplicity = *notes->emplace_back().mutable_simplicity_cost();
    simplicity.set_lost_share(cost);
    simplicity.set_requests_per_second(best.candidate.placement.requests_per_second);
    simplicity.set_stages(chosen.choosable.stages);
    simplicity.set_other_stages(best.choosable.stages);
    simplicity.set_within(preference_.simpler_within);
    simplicity.set_survives(ServesOn(chosen.choosable) && !ServesOn(best.choosable));
    simplicity.set_weighed(preference_.weighs());
  }

  const PlanningProblem& planning_;
  const PlannerOptions& options_;
  const PlacementProblem& problem_;
  Preference preference_;
  const v1::PlanPreference prefer_;  // what the choice is for
  const Search& search_;
  SimulatedQuestion simulation_;
  Candidates found_;
  std::vector<Finalist> finalists_;
  Choice balanced_;
  size_t refuted_ = 0;              // that were none in the end
  double tpot_of_prediction_ = 1;   // the least part of it that a simulation found
  std::optional<Placement> about_;  // what the search at the choice's limit says beside replicas
  double about_limit_ = 0;
  bool simulates_ = false;
  absl::Status unsimulated_;  // why the finalists are not simulated
};

}  // namespace

absl::StatusOr<PreferredPlacement> SearchPreferred(const PlanningProblem& planning,
                                                   const Preference& preference,
                                                   const Search& search) {
  return Preferring(planning, preference, search).Run();
}

}  // namespace tessera::scheduler
