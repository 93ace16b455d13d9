#include "scheduler/planner/sensitivity.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "absl/strings/str_format.h"
#include "scheduler/planner/described_links.h"
#include "scheduler/planner/device_prices.h"
#include "scheduler/planner/link_prices.h"
#include "scheduler/planner/plan_text.h"
#include "scheduler/planner/written_layout.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kOtherChoice = 1.001;  // a better layout must be better by this
constexpr int kReplannedUpTo = 12;      // devices of a cluster that is planned again unasked

std::string FirstLine(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

// Efficiencies multiply peaks everywhere in the cost model, so scaling the peaks is the same and
// holds for measured profiles as well.
void ScaleDevices(double by, PlannerInput* input) {
  const auto scale = [by](v1::DeviceKind* kind) {
    kind->set_dense_flops_per_second(kind->dense_flops_per_second() * by);
    kind->set_memory_bandwidth_bytes_per_second(kind->memory_bandwidth_bytes_per_second() * by);
  };
  for (v1::DeviceKind& kind : *input->catalogue.mutable_kinds()) scale(&kind);
  for (v1::DeviceKind& kind : *input->cluster.mutable_kinds()) scale(&kind);
  for (v1::Machine& machine : *input->cluster.mutable_machines()) {
    for (v1::DeviceGroup& group : *machine.mutable_devices()) {
      if (!group.has_profile()) continue;
      v1::MeasuredProfile& profile = *group.mutable_profile();
      profile.set_memory_read_bytes_per_second(profile.memory_read_bytes_per_second() * by);
    }
  }
}

void ScaleOutputs(double by, PlannerInput* input) {
  for (v1::WorkloadClass& one : *input->workload.mutable_classes()) {
    for (v1::LengthSample& sample : *one.mutable_lengths())
      sample.set_output_tokens(
          std::max<int64_t>(1, std::llround(static_cast<double>(sample.output_tokens()) * by)));
  }
  for (TraceRequest& request : input->trace)
    request.output_tokens = std::max(1.0, std::round(request.output_tokens * by));
}

void ScaleLinks(double by, PlannerInput* input) {
  for (const DescribedLink& one : LinksOf(&input->cluster))
    one.link->set_bandwidth_bytes_per_second(one.link->bandwidth_bytes_per_second() * by);
  const auto scale = [by](v1::DeviceKind* kind) {
    if (!kind->has_peer_link()) return;
    kind->mutable_peer_link()->set_bandwidth_bytes_per_second(
        kind->peer_link().bandwidth_bytes_per_second() * by);
  };
  for (v1::DeviceKind& kind : *input->catalogue.mutable_kinds()) scale(&kind);
  for (v1::DeviceKind& kind : *input->cluster.mutable_kinds()) scale(&kind);
}

constexpr char kLayoutName[] = "the plan";

class Study {
 public:
  Study(const PlannerInput& input, const PlannerOptions& options, v1::DeploymentPlan* plan)
      : input_(input), options_(options), plan_(*plan) {
    judging_ = options;
    judging_.given_search = GivenLayout(LayoutOf(*plan), kLayoutName);
    now_ = PromisedRate(*plan);
  }

  void Changes(bool search_again) {
    const struct {
      const char* name;
      std::function<void(PlannerInput*)> apply;
    } changes[] = {{"efficiencies 10 % lower", [](PlannerInput* i) { ScaleDevices(0.9, i); }},
                   {"efficiencies 10 % higher", [](PlannerInput* i) { ScaleDevices(1.1, i); }},
                   {"outputs 20 % shorter", [](PlannerInput* i) { ScaleOutputs(0.8, i); }},
                   {"outputs 20 % longer", [](PlannerInput* i) { ScaleOutputs(1.2, i); }},
                   {"links 30 % slower", [](PlannerInput* i) { ScaleLinks(0.7, i); }},
                   {"links 30 % faster", [](PlannerInput* i) { ScaleLinks(1.3, i); }}};
    if (options_.goal == Goal::kPrice) {
      plan_.add_sensitivity(
          "requests/s are those that this layout can serve: its price stays as it is");
    }
    for (const auto& change : changes) {
      if (options_.watch.Stopped()) return;
      PlannerInput changed = input_;
      change.apply(&changed);
      const absl::StatusOr<v1::DeploymentPlan> kept = MakePlan(changed, judging_);
      std::string line = StrCat(change.name, ": ");
      const double value = kept.ok() ? PromisedRate(*kept) : 0;
      line +=
          kept.ok() ? Against(value) : StrCat("this layout does not work: ", WhyNot(kept.status()));
      if (search_again) line += Choice(changed, value);
      plan_.add_sensitivity(std::move(line));
    }
    if (!search_again)
      plan_.add_sensitivity(
          "whether another layout would then be chosen is not known: --sensitivity searches again");
  }

  void Links(bool search_again) { AddLinkPrices(input_, judging_, options_, search_again, &plan_); }

  // What the other choices would have been worth, and what limits them.
  void Alternatives() {
    std::set<std::string> kinds;
    for (const v1::Machine& machine : input_.cluster.machines()) {
      for (const v1::DeviceGroup& group : machine.devices()) kinds.insert(group.kind());
    }
    const bool split = std::any_of(
        plan_.replicas().begin(), plan_.replicas().end(),
        [](const v1::Replica& replica) { return replica.role() != v1::REPLICA_ROLE_BOTH; });
    if (split) {
      PlannerOptions whole = options_;
      whole.allow_split = false;
      Alternative("every replica prefills and decodes", input_, whole);
    }
    if (kinds.size() < 2) return;
    for (const bool only : {true, false}) {
      for (const std::string& kind : kinds) {
        if (options_.watch.Stopped()) return;
        PlannerInput some = input_;
        Keep(&some.cluster, [&](const std::string& k) { return (k == kind) == only; });
        Alternative(StrCat(only ? "only " : "without ", kind), some, options_);
      }
    }
  }

 private:
  std::string Against(double value) const {
    return absl::StrFormat("%.3f %s (%s)", value, PromisedUnit(plan_), ChangeText(value / now_));
  }

  std::string Choice(const PlannerInput& changed, double value) const {
    const absl::StatusOr<v1::DeploymentPlan> best = MakePlan(changed, options_);
    if (!best.ok()) return "; no other layout works either";
    const double reach = PromisedRate(*best);
    if (reach <= value * kOtherChoice) return "; the choice stays";
    return absl::StrFormat("; another layout would be chosen, for %.3f %s", reach,
                           PromisedUnit(plan_));
  }

  static void Keep(v1::Cluster* cluster, const std::function<bool(const std::string&)>& wanted) {
    std::set<std::string> places;
    auto* machines = cluster->mutable_machines();
    for (int m = machines->size() - 1; m >= 0; --m) {
      auto* groups = machines->Mutable(m)->mutable_devices();
      for (int g = groups->size() - 1; g >= 0; --g) {
        if (!wanted(groups->Get(g).kind())) groups->DeleteSubrange(g, 1);
      }
      if (groups->empty()) {
        machines->DeleteSubrange(m, 1);
      } else {
        places.insert(machines->Get(m).name());
        places.insert(machines->Get(m).site());
      }
    }
    auto* links = cluster->mutable_links();
    for (int i = links->size() - 1; i >= 0; --i) {
      if (!places.contains(links->Get(i).from()) || !places.contains(links->Get(i).to()))
        links->DeleteSubrange(i, 1);
    }
    auto* sites = cluster->mutable_sites();
    for (int i = sites->size() - 1; i >= 0; --i) {
      if (!places.contains(sites->Get(i).name())) sites->DeleteSubrange(i, 1);
    }
  }

  // Without the name under which the planner was given the layout.
  static std::string WhyNot(const absl::Status& status) {
    std::string text = FirstLine(StdView(status.message()));
    const std::string name = StrCat(kLayoutName, ": ");
    return text.starts_with(name) ? text.substr(name.size()) : text;
  }

  void Alternative(const std::string& name, const PlannerInput& input,
                   const PlannerOptions& options) {
    if (options_.watch.Stopped()) return;
    const absl::StatusOr<v1::DeploymentPlan> plan = MakePlan(input, options);
    if (!plan.ok()) {
      plan_.add_alternatives(StrCat(name, ": none, ", FirstLine(StdView(plan.status().message()))));
      return;
    }
    const double value = PromisedRate(*plan);
    const std::string& bottleneck = plan->certificate().bottleneck();
    plan_.add_alternatives(StrCat(name, ": ", Against(value), " on ", plan->replicas_size(),
                                  plan->replicas_size() == 1 ? " replica; " : " replicas; ",
                                  bottleneck.substr(0, bottleneck.find(';'))));
  }

  const PlannerInput& input_;
  const PlannerOptions& options_;
  PlannerOptions judging_;  // the plan's layout, no search
  v1::DeploymentPlan& plan_;
  double now_ = 0;
};

}  // namespace

void AddSensitivity(const PlannerInput& input, const PlannerOptions& options, bool search_again,
                    v1::DeploymentPlan* plan) {
  if (PromisedRate(*plan) <= 0) return;
  // Plans that must survive take many searches each.
  const bool quick = DevicesOf(input.cluster) <= kReplannedUpTo && !options.survive_machine_loss;
  PlannerOptions told = options;
  told.routing_bound = false;  // nobody reads it of plans that are held against this one
  told.watch.progress = [&](const std::string& what) {
    options.watch.Report(StrCat("what changes would bring: ", what));
  };
  if (search_again || quick) AddDevicePrices(input, told, {}, plan);
  Study study(input, told, plan);
  study.Changes(search_again);
  study.Links(search_again);
  if (search_again) study.Alternatives();
}

}  // namespace tessera::scheduler
