#include "scheduler/planner/shared_cluster.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "scheduler/planner/deal.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kOverload = 1 + 1e-6;

absl::Status CheckAsked(const std::vector<PlannerInput>& inputs, const PlannerOptions& options) {
  if (inputs.size() < 2)
    return absl::InvalidArgumentError("sharing a cluster needs two models or more");
  if (options.goal != Goal::kThroughput) {
    return absl::InvalidArgumentError(
        "--objective: several models share a cluster for throughput only; plan for a price or a "
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
    shared.theta = deal_.theta;
    shared.of_asked = Rated();
    shared.plans = std::move(plans_);
    Overloads(shared.plans, &shared.theta);
    shared.text = Text(shared);
    return shared;
  }

 private:
  bool Rated() const { return inputs_.front().workload.requests_per_second() > 0; }

  std::string NameOf(size_t i) const { return inputs_[i].model.name(); }

  absl::Status Plan(size_t i) {
    PlannerOptions options = options_;
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
    auto* lines = plans_[i].mutable_explanation();
    lines->erase(std::remove_if(lines->begin(), lines->end(),
                                [](const auto& line) { return line.starts_with("not used: "); }),
                 lines->end());
    for (std::string& line : *plans_[i].mutable_assumptions()) {
      if (line.starts_with("search = "))
        line = StrCat("search = ", options_.search.empty() ? "best" : options_.search,
                      " on parts of the cluster, dealt to models; splitting prefill and decode ",
                      options_.allow_split ? "allowed" : "not allowed", " (options)");
    }
    return absl::OkStatus();
  }

  absl::Status MakeDeal() {
    Dealer dealer(problems_, search_, sharing_);
    for (size_t i = 0; i < problems_.size(); ++i) {
      const absl::StatusOr<Placement> alone = dealer.Alone(i);
      if (!alone.ok()) return alone.status();
      alone_.push_back(alone->requests_per_second);
      weights_.push_back(Rated() ? inputs_[i].workload.requests_per_second() : alone_.back());
    }
    absl::StatusOr<Deal> deal = dealer.Run(weights_);
    if (!deal.ok()) return deal.status();
    deal_ = *std::move(deal);
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
      placements_.push_back(*std::move(placement));
    }
    for (size_t p = 0; p < used.size(); ++p) {
      if (used[p] > problems_.front()->graph->pools()[p].count)
        return absl::InternalError("a deal uses devices twice");
    }
    idle_ = Idle(*problems_.front()->graph, used);
    return absl::OkStatus();
  }

  std::string Why(size_t i) const {
    std::vector<std::string> others;
    for (size_t j = 0; j < inputs_.size(); ++j) {
      if (j != i) others.push_back(NameOf(j));
    }
    return absl::StrFormat(
        "shares the cluster with %s; with all of it to itself it would serve %.3f requests/s",
        absl::StrJoin(others, ", "), alone_[i]);
  }

  // Links that plans load together beyond what they carry: theta is what they do carry.
  void Overloads(const std::vector<v1::DeploymentPlan>& plans, double* theta) {
    std::map<std::pair<std::string, std::string>, std::pair<double, double>> loads;
    for (const v1::DeploymentPlan& plan : plans) {
      for (const v1::LinkLoad& link : plan.links()) {
        auto& [bytes, capacity] = loads[{link.from(), link.to()}];
        bytes += link.bytes_per_second();
        capacity = link.capacity_bytes_per_second();
      }
    }
    double worst = kOverload;
    for (const auto& [ends, load] : loads) {
      if (load.first <= load.second * worst) continue;
      worst = load.first / load.second;
      overload_ = absl::StrFormat(
          "%s carries %.0f %% of what the plans send over it together: theta is cut by that much",
          ends.second.empty() ? StrCat("the uplink of ", ends.first)
                              : StrCat("the link ", ends.first, " -> ", ends.second),
          100 / worst);
    }
    if (!overload_.empty()) *theta /= worst;
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

  // What the deal leaves over, by kind.
  static std::string Idle(const ClusterGraph& graph, const std::vector<int>& used) {
    std::map<std::string, int> kinds;
    for (size_t p = 0; p < used.size(); ++p)
      kinds[graph.pools()[p].spec->kind] += graph.pools()[p].count - used[p];
    std::vector<std::string> parts;
    for (const auto& [kind, count] : kinds) {
      if (count > 0) parts.push_back(StrCat(count, " ", kind));
    }
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
    out +=
        StrCat("  ", NameOf(least), " is what limits the deal: ",
               deal_.exact ? "every deal of the devices was tried, each part planned by the search"
                           : "devices were dealt by a program over parts of the cluster and "
                             "moves (heuristic, no bound)",
               "\n");
    if (!overload_.empty()) out += StrCat("  ", overload_, "\n");
    if (!idle_.empty()) out += StrCat("  used by no model: ", idle_, "\n");
    return out +
           "  not told where several models share a cluster: other choices, what one more device "
           "or "
           "more bandwidth would bring, and what if the assumptions are off: the devices would "
           "have "
           "to be dealt anew for each; tessera plan --what-if deals them anew for a change that "
           "you name\n";
  }

  const std::vector<PlannerInput>& inputs_;
  const PlannerOptions& options_;
  const SharingOptions& sharing_;
  Search search_;
  std::vector<const PlacementProblem*> problems_;
  std::vector<double> alone_, weights_;
  Deal deal_;
  std::vector<Placement> placements_;
  std::vector<v1::DeploymentPlan> plans_;
  std::string overload_, idle_;
};

}  // namespace

absl::StatusOr<SharedPlans> PlanShared(const std::vector<PlannerInput>& inputs,
                                       const PlannerOptions& options,
                                       const SharingOptions& sharing) {
  if (absl::Status s = CheckAsked(inputs, options); !s.ok()) return s;
  return Sharer(inputs, options, sharing).Run();
}

v1::DeploymentPlan PlanForPicture(const SharedPlans& shared) {
  v1::DeploymentPlan all;
  std::map<std::pair<std::string, std::string>, v1::LinkLoad*> links;
  std::set<std::string> assumed;
  v1::Prediction& sum = *all.mutable_prediction();
  std::string& title = *all.mutable_model()->mutable_name();
  for (size_t i = 0; i < shared.plans.size(); ++i) {
    const v1::DeploymentPlan& plan = shared.plans[i];
    const std::string letter = i < 26 ? std::string(1, static_cast<char>('A' + i)) : StrCat("M", i);
    title += StrCat(i == 0 ? "" : ", ", letter, ": ", plan.model().name());
    const auto named = [&](const std::string& name) { return StrCat(letter, ".", name); };
    for (v1::Replica replica : plan.replicas()) {
      replica.set_name(named(replica.name()));
      *all.add_replicas() = std::move(replica);
    }
    for (v1::RoutingShare share : plan.routing()) {
      share.set_prefill_replica(named(share.prefill_replica()));
      share.set_decode_replica(named(share.decode_replica()));
      *all.add_routing() = std::move(share);
    }
    for (const v1::LinkLoad& link : plan.links()) {
      v1::LinkLoad*& known = links[{link.from(), link.to()}];
      const double before = known == nullptr ? 0 : known->bytes_per_second();
      if (known == nullptr) *(known = all.add_links()) = link;
      known->set_bytes_per_second(before + link.bytes_per_second());
    }
    for (const std::string& line : plan.assumptions()) {
      if (assumed.insert(line).second) all.add_assumptions(line);
    }
    sum.set_requests_per_second(sum.requests_per_second() +
                                plan.prediction().requests_per_second());
    sum.set_output_tokens_per_second(sum.output_tokens_per_second() +
                                     plan.prediction().output_tokens_per_second());
  }
  return all;
}

std::vector<std::string> PlanFileNames(const std::string& file, const SharedPlans& shared) {
  const size_t slash = file.rfind('/');
  size_t dot = file.rfind('.');
  if (dot == std::string::npos || (slash != std::string::npos && dot < slash)) dot = file.size();
  std::vector<std::string> names;
  std::set<std::string> used;
  for (const v1::DeploymentPlan& plan : shared.plans) {
    const std::string& full = plan.model().name();
    std::string name = full.substr(full.find_last_not_of('/') == std::string::npos
                                       ? 0
                                       : full.rfind('/', full.find_last_not_of('/')) + 1);
    std::replace(name.begin(), name.end(), '/', '_');
    std::string unique = name;
    for (int i = 2; !used.insert(unique).second; ++i) unique = StrCat(name, "-", i);
    names.push_back(StrCat(file.substr(0, dot), ".", unique, file.substr(dot)));
  }
  return names;
}

}  // namespace tessera::scheduler
