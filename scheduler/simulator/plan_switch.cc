#include "scheduler/simulator/plan_switch.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_format.h"

namespace tessera::scheduler {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

std::string FreeName(std::string name, const std::vector<ReplicaSetup>& taken) {
  const auto is_taken = [&](const ReplicaSetup& replica) { return replica.name == name; };
  while (std::any_of(taken.begin(), taken.end(), is_taken)) name += "'";
  return name;
}

ScheduledChange Change(double at, ScheduledChange::Kind kind, int replica) {
  ScheduledChange change;
  change.at_seconds = at;
  change.kind = kind;
  change.replica = replica;
  return change;
}

// Where the links of `next` are among all links.
std::vector<int> MergeLinks(const TransferSetup& next, TransferSetup* all) {
  std::vector<int> link_of;
  for (const SharedLink& link : next.links) {
    const auto found = std::find_if(all->links.begin(), all->links.end(),
                                    [&](const SharedLink& l) { return l.name == link.name; });
    link_of.push_back(static_cast<int>(found - all->links.begin()));
    if (found == all->links.end()) all->links.push_back(link);
  }
  return link_of;
}

void Renumber(const std::vector<int>& link_of, std::vector<int>* links) {
  for (int& link : *links) link = link_of[static_cast<size_t>(link)];
}

// Puts the routes of `next` between the replicas that it has there; those that are there stay.
void MergeRoutes(const TransferSetup& next, const std::vector<int>& index,
                 const std::vector<int>& link_of, size_t count_before, size_t count,
                 TransferSetup* all) {
  std::vector<std::vector<KvStream>> routes(count * count);
  if (!all->routes.empty()) {
    for (size_t p = 0; p < count_before; ++p) {
      for (size_t d = 0; d < count_before; ++d)
        routes[p * count + d] = std::move(all->routes[p * count_before + d]);
    }
  }
  for (size_t p = 0; p < index.size() && !next.routes.empty(); ++p) {
    for (size_t d = 0; d < index.size(); ++d) {
      std::vector<KvStream>& route =
          routes[static_cast<size_t>(index[p]) * count + static_cast<size_t>(index[d])];
      if (!route.empty()) continue;
      route = next.routes[p * index.size() + d];
      for (KvStream& stream : route) Renumber(link_of, &stream.links);
    }
  }
  all->routes = std::move(routes);
  all->layers = next.layers;
}

}  // namespace

PlanTimeline StartWith(PlanReplicas first) {
  PlanTimeline timeline;
  timeline.replicas = std::move(first);
  for (size_t i = 0; i < timeline.replicas.replicas.size(); ++i)
    timeline.running.push_back(static_cast<int>(i));
  timeline.gone_seconds.assign(timeline.running.size(), kNever);
  timeline.shares.push_back({0, timeline.replicas.shares});
  timeline.usd_per_hour.push_back({0, timeline.replicas.usd_per_hour});
  return timeline;
}

absl::Status SwitchTo(const PlanReplicas& next, std::span<const ReplicaSwitch> switches,
                      double at_seconds, PlanTimeline* timeline) {
  if (at_seconds < timeline->settled_seconds) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "at %g s the plan before it is still being loaded, until %g s: switch later", at_seconds,
        timeline->settled_seconds));
  }
  std::vector<ReplicaSetup>& all = timeline->replicas.replicas;
  const size_t before = all.size();
  std::vector<bool> kept(before, false);
  TransferSetup& transfers = timeline->replicas.transfers;
  const std::vector<int> link_of = MergeLinks(next.transfers, &transfers);
  std::vector<int> index;
  timeline->settled_seconds = at_seconds;
  for (size_t i = 0; i < next.replicas.size(); ++i) {
    if (switches[i].stays_as >= 0) {
      index.push_back(timeline->running[static_cast<size_t>(switches[i].stays_as)]);
      kept[static_cast<size_t>(index.back())] = true;
      continue;
    }
    const double ready = at_seconds + switches[i].ready_seconds;
    timeline->settled_seconds = std::max(timeline->settled_seconds, ready);
    index.push_back(static_cast<int>(all.size()));
    ReplicaSetup setup = next.replicas[i];
    setup.name = FreeName(setup.name, all);
    setup.ready = false;
    for (std::vector<int>& hop : setup.hop_links) Renumber(link_of, &hop);
    all.push_back(std::move(setup));
    timeline->gone_seconds.push_back(kNever);
    timeline->changes.push_back(Change(ready, ScheduledChange::Kind::kRecover, index.back()));
  }
  for (const int replica : timeline->running) {
    if (kept[static_cast<size_t>(replica)]) continue;
    timeline->gone_seconds[static_cast<size_t>(replica)] = at_seconds;
    timeline->changes.push_back(Change(at_seconds, ScheduledChange::Kind::kLose, replica));
  }
  SharesSince shares = {at_seconds, next.shares};
  for (PairShare& pair : shares.shares) {
    pair.prefill = index[static_cast<size_t>(pair.prefill)];
    pair.decode = index[static_cast<size_t>(pair.decode)];
  }
  timeline->shares.push_back(std::move(shares));
  MergeRoutes(next.transfers, index, link_of, before, all.size(), &transfers);
  timeline->usd_per_hour.push_back({at_seconds, next.usd_per_hour});
  timeline->running = std::move(index);
  return absl::OkStatus();
}

double MeanUsdPerHour(const PlanTimeline& timeline, double end_seconds) {
  double sum = 0;
  for (size_t i = 0; i < timeline.usd_per_hour.size(); ++i) {
    const double until =
        i + 1 < timeline.usd_per_hour.size() ? timeline.usd_per_hour[i + 1].first : end_seconds;
    const double from = timeline.usd_per_hour[i].first;
    sum += timeline.usd_per_hour[i].second * std::max(0.0, std::min(until, end_seconds) - from);
  }
  return end_seconds > 0 ? sum / end_seconds : timeline.usd_per_hour.front().second;
}

}  // namespace tessera::scheduler
