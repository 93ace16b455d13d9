#include "scheduler/planner/shared/shared_text.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "scheduler/planner/report/outlook_text.h"
#include "scheduler/planner/report/plan_table.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {

std::string SharedText(const SharedPlans& shared) {
  std::string text = shared.text;
  AppendOutlook(shared.plans.front(), &text);
  for (v1::DeploymentPlan plan : shared.plans) {
    // Told of the deal already.
    plan.clear_alternatives();
    plan.clear_sensitivity();
    plan.clear_device_prices();
    plan.clear_link_prices();
    text += "\n" + PlanTable(plan);
  }
  return text;
}

v1::DeploymentPlan PlanForPicture(const SharedPlans& shared) {
  v1::DeploymentPlan all;
  std::map<std::pair<std::string, std::string>, v1::LinkLoad*> links;
  // The assumptions about the cluster, which are the same for all; each model has its own workload.
  if (!shared.plans.empty()) *all.mutable_assumptions() = shared.plans.front().assumptions();
  all.mutable_assumptions()->clear_classes();
  all.mutable_assumptions()->clear_workload();
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
