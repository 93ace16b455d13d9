#include "scheduler/search/layout/device_groups.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "absl/strings/str_format.h"
#include "scheduler/search/layout/assemble.h"
#include "scheduler/search/layout/rate_program.h"
#include "scheduler/search/layout/rented_replicas.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {

int DeviceGroup::devices() const { return std::accumulate(counts.begin(), counts.end(), 0); }

void Normalise(Grouping* grouping) {
  std::erase_if(*grouping, [](const DeviceGroup& group) { return group.devices() == 0; });
  std::sort(grouping->begin(), grouping->end(), [](const DeviceGroup& a, const DeviceGroup& b) {
    return std::tie(a.role, a.counts) < std::tie(b.role, b.counts);
  });
}

bool Better(const PlacementProblem& problem, const Worth& a, const Worth& b) {
  if (problem.goal != Goal::kPrice) return a.requests_per_second > b.requests_per_second;
  const double need = problem.required_requests_per_second * (1 - 1e-6);
  const bool a_serves = a.requests_per_second >= need, b_serves = b.requests_per_second >= need;
  if (a_serves != b_serves) return a_serves;
  return a_serves ? a.usd_per_hour < b.usd_per_hour : a.requests_per_second > b.requests_per_second;
}

GroupLayouts::GroupLayouts(const PlacementProblem& problem, const GroupLayoutOptions& options)
    : problem_(problem),
      pools_(problem.graph->pools()),
      options_(options),
      lengths_(MomentsOf(problem.samples)),
      judge_(problem) {}

DeviceGroup GroupLayouts::Everything(Role role) const {
  DeviceGroup group;
  group.role = role;
  for (const DevicePool& pool : pools_) group.counts.push_back(pool.count);
  return group;
}

DeviceGroup GroupLayouts::Trimmed(const DeviceGroup& group) const {
  DeviceGroup trimmed = group;
  std::vector<size_t> order;
  for (size_t p = 0; p < pools_.size(); ++p) {
    if (group.counts[p] > 0) order.push_back(p);
  }
  const auto memory = [&](size_t p) { return group.counts[p] * pools_[p].spec->memory_bytes; };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return memory(a) > memory(b); });
  int64_t states = 1;
  for (const size_t p : order) {
    if (states * (group.counts[p] + 1) > options_.most_states && states > 1) {
      trimmed.counts[p] = 0;
    } else {
      states *= group.counts[p] + 1;
    }
  }
  return trimmed;
}

LayoutProblem GroupLayouts::ProblemOf(const DeviceGroup& group, std::vector<int>* members) const {
  LayoutProblem layout;
  layout.model = problem_.model;
  layout.graph = problem_.graph;
  layout.lengths = lengths_;
  layout.options = problem_.options;
  layout.role = group.role;
  layout.least_latency = options_.prefill_by_latency && group.role == Role::kPrefill &&
                         problem_.goal != Goal::kGoodput;
  for (size_t p = 0; p < group.counts.size(); ++p) {
    if (group.counts[p] == 0) continue;
    members->push_back(static_cast<int>(p));
    layout.pools.push_back({pools_[p].spec, pools_[p].machine, group.counts[p]});
  }
  return layout;
}

PlacedReplica GroupLayouts::ToReplica(const Layout& layout, const std::vector<int>& members,
                                      Role role) const {
  PlacedReplica replica;
  replica.role = role;
  replica.rate = layout.rate;
  for (LayoutStage stage : layout.stages) {
    stage.pool = members[static_cast<size_t>(stage.pool)];
    replica.stages.push_back(stage);
  }
  if (replica.stages.empty()) replica.rate = ReplicaRate();
  return replica;
}

PlacedReplica GroupLayouts::MakeReplicaOf(const DeviceGroup& group) {
  std::vector<int> members;
  LayoutProblem layout = ProblemOf(options_.exact ? group : Trimmed(group), &members);
  if (members.empty()) return PlacedReplica();
  const std::string key = KeyOf(layout);
  auto known = by_key_.find(key);
  if (known == by_key_.end()) {
    const int steps = options_.layer_steps;
    layout.layer_step = options_.exact ? 1 : (problem_.model->layers + steps - 1) / steps;
    layout.refine = layout.exact = options_.exact;
    layout.stop = Watched("coarse", layout, options_.exact);  // coarse ones end soon
    known = by_key_.emplace(key, BestLayoutFor(&judge_, layout)).first;
  }
  return ToReplica(known->second, members, group.role);
}

const PlacedReplica& GroupLayouts::ReplicaOf(const DeviceGroup& group) {
  const auto key = std::pair(group.role, group.counts);
  const auto known = by_group_.find(key);
  if (known != by_group_.end()) return known->second;
  return by_group_.emplace(key, MakeReplicaOf(group)).first->second;
}

Worth GroupLayouts::WorthOf(const Grouping& grouping) {
  std::vector<const PlacedReplica*> replicas;
  for (const DeviceGroup& group : grouping) replicas.push_back(&ReplicaOf(group));
  const std::vector<bool> chosen = RentedReplicas(problem_, replicas);
  Worth worth;
  worth.usd_per_hour = RentOf(problem_, replicas, chosen);
  std::vector<const PlacedReplica*> split;
  for (size_t i = 0; i < replicas.size(); ++i) {
    if (!chosen[i]) continue;
    if (replicas[i]->role == Role::kBoth) {
      worth.requests_per_second += replicas[i]->rate.requests_per_second;
    } else {
      split.push_back(replicas[i]);
    }
  }
  if (split.empty()) return worth;
  const absl::StatusOr<std::vector<double>> rates =
      SolveTransport(MakeRateProgram(problem_, lengths_, split));
  if (!rates.ok()) return Worth();  // a program of capacities has a solution: zero
  for (const double rate : *rates) worth.requests_per_second += rate;
  return worth;
}

Grouping GroupLayouts::WithRoles(Grouping grouping) {
  struct Rated {
    DeviceGroup group;
    double prefill = 0, decode = 0;
  };
  std::vector<Rated> rated;
  for (DeviceGroup& group : grouping) {
    Rated& entry = rated.emplace_back();
    group.role = Role::kPrefill;
    entry.prefill = ReplicaOf(group).rate.requests_per_second;
    group.role = Role::kDecode;
    entry.decode = ReplicaOf(group).rate.requests_per_second;
    group.role = Role::kBoth;
    entry.group = group;
  }
  if (rated.size() < 2 || !MaySplit()) return grouping;
  std::stable_sort(rated.begin(), rated.end(), [](const Rated& a, const Rated& b) {
    return a.prefill * b.decode > b.prefill * a.decode;
  });
  std::vector<double> decode_after(rated.size() + 1, 0);
  for (size_t i = rated.size(); i > 0; --i)
    decode_after[i - 1] = decode_after[i] + rated[i - 1].decode;
  size_t cut = 1;
  double best = -1, prefill = 0;
  for (size_t i = 1; i < rated.size(); ++i) {
    prefill += rated[i - 1].prefill;
    const double served = std::min(prefill, decode_after[i]);
    if (served <= best) continue;
    best = served;
    cut = i;
  }
  Grouping with_roles;
  for (size_t i = 0; i < rated.size(); ++i) {
    with_roles.push_back(rated[i].group);
    with_roles.back().role = i < cut ? Role::kPrefill : Role::kDecode;
  }
  Normalise(&with_roles);
  return with_roles;
}

// The group's devices laid out again at full resolution.
PlacedReplica GroupLayouts::Polished(const DeviceGroup& group) {
  const PlacedReplica& coarse = ReplicaOf(group);
  if (options_.exact || coarse.stages.empty() || problem_.goal == Goal::kGoodput ||
      problem_.watch.Stopped()) {
    return coarse;
  }
  DeviceGroup used = group;
  used.counts = DevicesByPool(coarse.stages, pools_.size());
  std::vector<int> members;
  LayoutProblem layout = ProblemOf(used, &members);
  int64_t states = problem_.model->layers;
  for (const LayoutPool& pool : layout.pools) states *= pool.count + 1;
  while (states / layout.layer_step > options_.most_fine_states &&
         layout.layer_step < problem_.model->layers) {
    layout.layer_step *= 2;
  }
  if (!layout.least_latency) layout.known_rate = coarse.rate.requests_per_second;
  layout.stop = Watched("fine", layout, true);
  const std::string key = "fine " + KeyOf(layout);
  auto known = by_key_.find(key);
  if (known == by_key_.end()) known = by_key_.emplace(key, BestLayout(layout)).first;
  return known->second.stages.empty() ? coarse : ToReplica(known->second, members, group.role);
}

std::function<bool()> GroupLayouts::Watched(const char* resolution, const LayoutProblem& layout,
                                            bool stops) const {
  int devices = 0;
  for (const LayoutPool& pool : layout.pools) devices += pool.count;
  return [this, stops,
          what = StrCat("layouts made: ", layouts(), ", now a ", resolution, " one of ", devices,
                        devices == 1 ? " device" : " devices")] {
    problem_.watch.Report(what);
    return stops && problem_.watch.Stopped();
  };
}

void GroupLayouts::Report(const char* what, int64_t evaluations, const Worth& best) const {
  if (!problem_.watch.progress) return;
  problem_.watch.Report(absl::StrFormat("%d %s, %d layouts, %.3f requests/s so far", evaluations,
                                        what, layouts(), best.requests_per_second));
}

absl::StatusOr<Placement> GroupLayouts::Finish(const Grouping& grouping, int64_t evaluations) {
  std::vector<PlacedReplica> fine;
  for (const DeviceGroup& group : grouping) fine.push_back(ReplicaOf(group));
  std::vector<const PlacedReplica*> offered;
  for (const PlacedReplica& replica : fine) offered.push_back(&replica);
  // What is not rented, and may be most of a market, need not be laid out any finer, unless nothing
  // is: finer ones may reach the rate that is asked for.
  std::vector<bool> chosen = RentedReplicas(problem_, offered);
  const bool none = std::find(chosen.begin(), chosen.end(), true) == chosen.end();
  for (size_t i = 0; i < fine.size(); ++i) {
    if (chosen[i] || none) fine[i] = Polished(grouping[i]);
  }
  chosen = RentedReplicas(problem_, offered);
  std::vector<PlacedReplica> run;
  for (size_t i = 0; i < fine.size(); ++i) {
    if (chosen[i]) run.push_back(fine[i]);
  }
  absl::StatusOr<Placement> placement = Assemble(problem_, std::move(run));
  if (!placement.ok()) return placement;
  const double need =
      problem_.goal == Goal::kPrice ? problem_.required_requests_per_second * (1 - 1e-6) : 0;
  if (placement->requests_per_second <= 0 || placement->requests_per_second < need) {
    if (absl::Status room = CheckRoom(problem_); !room.ok()) return room;
    return absl::ResourceExhaustedError(absl::StrFormat(
        "this search found no placement that serves %s on the cluster's %d devices",
        problem_.goal == Goal::kPrice ? absl::StrFormat("%.3f requests/s", need)
                                      : StrCat("a request of ", problem_.model->name),
        problem_.graph->devices()));
  }
  placement->evaluations = evaluations;
  placement->interrupted = problem_.watch.Stopped();  // polishing may have been, too
  return placement;
}

}  // namespace tessera::scheduler
