#include "scheduler/planner/role_search.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "scheduler/plan_change.h"
#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/plan_simulation.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/planning_problem.h"
#include "scheduler/planner/written_layout.h"

namespace tessera::scheduler {
namespace {

constexpr int kAllUpTo = 4;             // replicas
constexpr size_t kMaxJudgements = 600;  // a few milliseconds each, of few replicas
constexpr size_t kFinalists = 3;
constexpr double kMinTtftRatio = 2;  // TTFT up to twice the best counts in full
constexpr double kUnlimited = std::numeric_limits<double>::infinity();

using Roles = std::vector<v1::ReplicaRole>;

constexpr v1::ReplicaRole kRoles[] = {v1::REPLICA_ROLE_BOTH, v1::REPLICA_ROLE_PREFILL,
                                      v1::REPLICA_ROLE_DECODE};

struct Judged {
  v1::DeploymentPlan plan;
  PlanFigures figures;
};

// A hand-written plan may leave it out.
v1::ReplicaRole RoleOf(const v1::Replica& replica) {
  return replica.role() == v1::REPLICA_ROLE_UNSPECIFIED ? v1::REPLICA_ROLE_BOTH : replica.role();
}

// The rate that replicas of these capacities sustain where requests are shared as `running` says.
double RateUnderShares(const v1::DeploymentPlan& judged, const v1::DeploymentPlan& running) {
  std::map<std::string, double> prefills, decodes;
  double sum = 0;
  for (const v1::RoutingShare& share : running.routing()) {
    prefills[share.prefill_replica()] += share.share();
    decodes[share.decode_replica()] += share.share();
    sum += share.share();
  }
  double rate = judged.prediction().requests_per_second();
  for (int i = 0; i < running.replicas_size() && sum > 0; ++i) {
    const std::string& name = running.replicas(i).name();
    const double part = std::max(prefills[name], decodes[name]) / sum;
    const double serves = judged.replicas(i).prediction().requests_per_second();
    if (part > 0) rate = std::min(rate, serves / part);
  }
  return rate;
}

class RoleSearch {
 public:
  RoleSearch(const PlannerInput& input, const PlannerOptions& options,
             const v1::DeploymentPlan& running)
      : input_(input), options_(options), running_(running) {
    options_.require_split = false;  // a layout is given
    options_.simulate = false;
    options_.attain_requests = 0;
    asks_split_ = options.require_split;
    simulates_ = options.simulate.value_or(true);
    preference_ = options.preference;
    preference_.asked_requests_per_second = input.workload.requests_per_second();
    const v1::ServiceObjectives& limits = input.workload.objectives();
    if (limits.time_per_output_token_seconds() > 0) preference_.full_tpot_seconds = 0;
    if (limits.time_to_first_token_seconds() > 0 || limits.end_to_end_seconds() > 0)
      preference_.full_ttft_seconds = 0;
  }

  absl::StatusOr<RoleChoice> Run() {
    auto planning = ReadPlanningProblem(input_, options_);
    if (!planning.ok()) return planning.status();
    planning_ = *std::move(planning);
    may_split_ = planning_->problem.allow_split;
    Roles now;
    for (const v1::Replica& replica : running_.replicas()) now.push_back(RoleOf(replica));
    absl::StatusOr<v1::DeploymentPlan> present = Planned(now, options_.max_sequences);
    if (!present.ok()) return present.status();
    preference_.decode_steps = std::max(0.0, present->basis().output_tokens() - 1);
    Explore(now);
    PlanFigures running = FiguresOf(*present);
    running.requests_per_second = RateUnderShares(*present, running_);
    WeighTtft(running);
    std::vector<Judged> finalists = Finalists(now);
    if (simulates_) Simulate(*present, &finalists, &running);
    return Chosen(std::move(finalists), running);
  }

 private:
  bool Allowed(v1::ReplicaRole role) const {
    return role == v1::REPLICA_ROLE_BOTH ? !asks_split_ : may_split_;
  }

  absl::StatusOr<v1::DeploymentPlan> Planned(const Roles& roles, double max_sequences) const {
    v1::WrittenLayout layout = LayoutOf(running_);
    for (int i = 0; i < layout.replicas_size(); ++i)
      layout.mutable_replicas(i)->set_role(roles[static_cast<size_t>(i)]);
    PlannerOptions options = options_;
    options.max_sequences = max_sequences;
    options.given_search = GivenLayout(std::move(layout), "the plan in force");
    return MakePlan(input_, options);
  }

  // Sequences at once of the replica that decodes and runs the fewest.
  double FewestSequences(const Roles& roles) const {
    double fewest = options_.max_sequences;
    for (int i = 0; i < running_.replicas_size(); ++i) {
      const int64_t runs = running_.replicas(i).max_sequences();
      if (roles[static_cast<size_t>(i)] != v1::REPLICA_ROLE_PREFILL && runs > 0)
        fewest = std::min(fewest, static_cast<double>(runs));
    }
    return fewest;
  }

  // The plan with the running one's names and sizes; nothing where it cannot keep its promise so.
  std::optional<v1::DeploymentPlan> Carried(v1::DeploymentPlan plan) const {
    if (plan.replicas_size() != running_.replicas_size()) return std::nullopt;
    std::map<std::string, std::string> names;
    for (int i = 0; i < plan.replicas_size(); ++i) {
      const v1::Replica& before = running_.replicas(i);
      v1::Replica& replica = *plan.mutable_replicas(i);
      names[replica.name()] = before.name();
      replica.set_name(before.name());
      replica.set_max_batched_tokens(before.max_batched_tokens());
      replica.set_max_sequences(before.max_sequences());
      if (replica.role() == RoleOf(before)) replica.set_micro_batches(before.micro_batches());
      if (const int64_t kv = before.prediction().kv_capacity_tokens(); kv > 0) {
        v1::Prediction& prediction = *replica.mutable_prediction();
        prediction.set_kv_capacity_tokens(std::min(prediction.kv_capacity_tokens(), kv));
      }
      if (replica.stages_size() != before.stages_size()) return std::nullopt;
      for (int j = 0; j < replica.stages_size(); ++j) {
        if (replica.stages(j).workers_size() != before.stages(j).workers_size())
          return std::nullopt;
        *replica.mutable_stages(j)->mutable_workers() = before.stages(j).workers();
      }
    }
    for (v1::RoutingShare& share : *plan.mutable_routing()) {
      share.set_prefill_replica(names.at(share.prefill_replica()));
      share.set_decode_replica(names.at(share.decode_replica()));
    }
    if (!CheckPlan(plan).ok()) return std::nullopt;
    const PlanChange change = ChangeOf(running_, plan);
    const bool reads = std::ranges::any_of(change.replicas, [](const ReplicaChange& one) {
      return one.kind == ReplicaChange::Kind::kRebuild || one.kind == ReplicaChange::Kind::kDrop;
    });
    if (reads) return std::nullopt;
    return plan;
  }

  // Null: cannot be, or was judged before and cannot be.
  const Judged* Judge(const Roles& roles) {
    if (const auto known = judged_.find(roles); known != judged_.end())
      return known->second ? &*known->second : nullptr;
    std::optional<Judged>& judged = judged_[roles];
    const double fewest = FewestSequences(roles);
    for (const double sequences : {options_.max_sequences, fewest}) {
      absl::StatusOr<v1::DeploymentPlan> plan = Planned(roles, sequences);
      if (!plan.ok()) return nullptr;
      std::optional<v1::DeploymentPlan> carried = Carried(*std::move(plan));
      if (carried) {
        judged = Judged{*std::move(carried), {}};
        judged->figures = FiguresOf(judged->plan);
        return &*judged;
      }
      if (fewest >= options_.max_sequences) break;
    }
    return nullptr;
  }

  bool MayGoOn() const { return judged_.size() < kMaxJudgements && !options_.watch.Stopped(); }

  void Explore(const Roles& now) {
    Judge(now);
    if (now.size() <= kAllUpTo) {
      Roles roles(now.size(), v1::REPLICA_ROLE_BOTH);
      JudgeAll(&roles, 0);
      return;
    }
    Climb(now);
    if (!asks_split_) Climb(Roles(now.size(), v1::REPLICA_ROLE_BOTH));
  }

  void JudgeAll(Roles* roles, size_t from) {
    if (from == roles->size()) {
      if (MayGoOn()) Judge(*roles);
      return;
    }
    for (const v1::ReplicaRole role : kRoles) {
      if (!Allowed(role)) continue;
      (*roles)[from] = role;
      JudgeAll(roles, from + 1);
    }
  }

  void Climb(Roles from) {
    const Judged* best = Judge(from);
    for (bool better = true; better;) {
      better = false;
      Roles next = from;
      for (const Roles& neighbour : Neighbours(from)) {
        if (!MayGoOn()) return;
        const Judged* judged = Judge(neighbour);
        if (judged == nullptr || (best != nullptr && !Better(*judged, *best))) continue;
        best = judged;
        next = neighbour;
        better = true;
      }
      from = std::move(next);
    }
  }

  // One role changes, or two do: the first replica that prefills needs one that decodes.
  std::vector<Roles> Neighbours(const Roles& from) const {
    std::vector<Roles> all;
    const auto change = [&](const Roles& roles, size_t i, const auto& use) {
      for (const v1::ReplicaRole role : kRoles) {
        if (!Allowed(role) || role == roles[i]) continue;
        Roles changed = roles;
        changed[i] = role;
        use(changed);
      }
    };
    for (size_t i = 0; i < from.size(); ++i)
      change(from, i, [&](const Roles& roles) { all.push_back(roles); });
    for (size_t i = 0; i < from.size(); ++i) {
      for (size_t j = i + 1; j < from.size(); ++j) {
        change(from, i, [&](const Roles& roles) {
          change(roles, j, [&](const Roles& both) { all.push_back(both); });
        });
      }
    }
    return all;
  }

  bool Better(const Judged& a, const Judged& b) const {
    const auto rank = [this](const PlanFigures& figures) {
      // As floats: replicas that are alike are worth the same, however their sums round.
      return std::tuple(figures.missed.empty(), Sustains(figures, preference_),
                        static_cast<float>(ValueOf(figures, preference_)));
    };
    return rank(a.figures) > rank(b.figures);
  }

  // The limit up to which TTFT counts in full, from the best that was seen.
  void WeighTtft(const PlanFigures& running) {
    if (preference_.full_ttft_seconds <= 0) return;
    double least = running.ttft_seconds;
    for (const auto& [roles, judged] : judged_) {
      if (judged) least = std::min(least, judged->figures.ttft_seconds);
    }
    if (least < kUnlimited)
      preference_.full_ttft_seconds =
          std::max(preference_.full_ttft_seconds, kMinTtftRatio * least);
  }

  // The best first; of those that come to the same the one that changes the fewest roles.
  std::vector<Judged> Finalists(const Roles& now) const {
    std::multimap<int, const Judged*> by_changes;
    for (const auto& [roles, judged] : judged_) {
      int changes = 0;
      for (size_t i = 0; i < now.size(); ++i) changes += roles[i] != now[i];
      if (judged) by_changes.emplace(changes, &*judged);
    }
    std::vector<Judged> all;
    std::set<std::tuple<float, float, float>> seen;
    for (const auto& [changes, judged] : by_changes) {
      const PlanFigures& figures = judged->figures;
      const bool fresh = seen.insert({static_cast<float>(figures.requests_per_second),
                                      static_cast<float>(figures.ttft_seconds),
                                      static_cast<float>(figures.tpot_seconds)})
                             .second;
      if (fresh) all.push_back(*judged);
    }
    std::ranges::stable_sort(all, [&](const Judged& a, const Judged& b) { return Better(a, b); });
    if (all.size() > kFinalists) all.resize(kFinalists);
    return all;
  }

  // Puts what a simulation shows in place of what the formula says. Where one of the plans cannot
  // be simulated, all keep the formula's.
  void Simulate(const v1::DeploymentPlan& present, std::vector<Judged>* finalists,
                PlanFigures* running) const {
    std::vector<PlanFigures> seen;
    for (const Judged& one : *finalists) {
      const std::optional<PlanFigures> figures = SeenOf(one.plan, one.plan, one.figures);
      if (!figures) return;
      seen.push_back(*figures);
    }
    const std::optional<PlanFigures> figures = SeenOf(running_, present, FiguresOf(present));
    if (!figures) return;
    *running = *figures;
    for (size_t i = 0; i < seen.size(); ++i) (*finalists)[i].figures = seen[i];
    std::ranges::stable_sort(*finalists,
                             [&](const Judged& a, const Judged& b) { return Better(a, b); });
  }

  // `promise`: the same layout as it was judged for the workload.
  std::optional<PlanFigures> SeenOf(const v1::DeploymentPlan& plan,
                                    const v1::DeploymentPlan& promise, PlanFigures figures) const {
    PlanReplicaOptions sizes;
    sizes.block_tokens = options_.block_tokens;
    const absl::StatusOr<PlanReplicas> replicas = ReplicasOfPlan(plan, planning_->graph, sizes);
    if (!replicas.ok()) return std::nullopt;
    SimulatedQuestion question = {&planning_->graph, &planning_->workload};
    question.watch = options_.watch;
    v1::SimulatedFigures seen;
    const double promised = promise.prediction().requests_per_second();
    absl::Status s = SeeServed(question, *replicas, promised,
                               RequestsFor(question, promise, promised, Seen::kServed), &seen);
    if (!s.ok() || !(seen.requests_per_second() > 0)) return std::nullopt;
    figures.requests_per_second = std::min(promised, seen.requests_per_second());
    const double asked = preference_.asked_requests_per_second;
    const double rate = asked > 0 && asked < figures.requests_per_second
                            ? asked
                            : kUsualLoad * figures.requests_per_second;
    figures.missed.clear();
    s = SeeLatencies(question, *replicas, rate,
                     RequestsFor(question, promise, rate, Seen::kLatencies), &seen,
                     &figures.missed);
    if (!s.ok()) return std::nullopt;
    figures.ttft_seconds = seen.time_to_first_token_mean_seconds();
    figures.tpot_seconds = seen.time_per_output_token_mean_seconds();
    figures.alone_seconds = figures.ttft_seconds + preference_.decode_steps * figures.tpot_seconds;
    return figures;
  }

  RoleChoice Chosen(std::vector<Judged> finalists, const PlanFigures& running) const {
    RoleChoice choice = {running_, running, running, 0, preference_};
    if (finalists.empty()) return choice;
    Judged& best = finalists.front();
    const double gain = GainOver(best.figures, running, preference_);
    if (!(gain > 0) || ChangeOf(running_, best.plan).empty()) return choice;
    choice.plan = std::move(best.plan);
    choice.figures = best.figures;
    choice.gain = gain;
    return choice;
  }

  const PlannerInput& input_;
  PlannerOptions options_;
  const v1::DeploymentPlan& running_;
  Preference preference_;
  bool asks_split_ = false, may_split_ = false, simulates_ = true;
  std::unique_ptr<PlanningProblem> planning_;
  std::map<Roles, std::optional<Judged>> judged_;
};

}  // namespace

absl::StatusOr<RoleChoice> BestRoles(const PlannerInput& input, const PlannerOptions& options,
                                     const v1::DeploymentPlan& running) {
  return RoleSearch(input, options, running).Run();
}

PlanFigures FiguresOf(const v1::DeploymentPlan& plan) {
  const v1::Prediction& prediction = plan.prediction();
  PlanFigures figures;
  figures.requests_per_second = prediction.requests_per_second();
  figures.ttft_seconds = prediction.time_to_first_token_seconds();
  figures.tpot_seconds = prediction.time_per_output_token_seconds();
  if (plan.simulated().requests_per_second() > 0) {
    const v1::SimulatedFigures& seen = plan.simulated();
    figures.requests_per_second = std::min(figures.requests_per_second, seen.requests_per_second());
    figures.ttft_seconds = seen.time_to_first_token_mean_seconds();
    figures.tpot_seconds = seen.time_per_output_token_mean_seconds();
  }
  // By the formula some wait without end.
  if (figures.ttft_seconds <= 0) figures.ttft_seconds = kUnlimited;
  figures.alone_seconds =
      figures.ttft_seconds + std::max(0.0, plan.basis().output_tokens() - 1) * figures.tpot_seconds;
  figures.missed.assign(plan.missed_limits().begin(), plan.missed_limits().end());
  return figures;
}

double GainOver(const PlanFigures& figures, const PlanFigures& other,
                const Preference& preference) {
  const auto over = [](double value, double than) {
    if (than > 0) return value / than - 1;
    return value > 0 ? kUnlimited : 0;
  };
  if (Sustains(figures, preference) != Sustains(other, preference))
    return over(figures.requests_per_second, other.requests_per_second);
  return over(ValueOf(figures, preference), ValueOf(other, preference));
}

}  // namespace tessera::scheduler
