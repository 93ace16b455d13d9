#include "scheduler/search/best/goodput_columns.h"

#include <algorithm>

#include "scheduler/search/layout/layout_polish.h"

namespace tessera::scheduler {
namespace {

constexpr double kNearPrice = 0.97;   // of their price: columns that whole numbers may still need
constexpr double kNearEnough = 0.65;  // of it: sets whose layouts may be worth a better one
constexpr int kMaxRounds = 20;
constexpr size_t kMaxFine = 60;

}  // namespace

std::vector<int> PartsTried(int devices) {
  std::vector<int> parts = {1};
  if (devices > 3) parts.push_back(devices / 2);
  if (devices > 1) parts.push_back(devices);
  return parts;
}

GoodputColumns::GoodputColumns(const PlacementProblem& problem, GroupLayouts* groups)
    : problem_(problem),
      pools_(problem.graph->pools()),
      groups_(*groups),
      twins_(*problem.graph),
      program_(problem, twins_),
      layouts_(problem, groups->judge()),
      order_(PoolsByPlace(*problem.graph)) {}

bool GoodputColumns::MayHold(const Counts& set) const {
  double bytes = 0;
  for (size_t p = 0; p < set.size(); ++p) bytes += set[p] * pools_[p].spec->memory_bytes;
  return bytes * problem_.options.memory.utilisation >= TotalWeightBytes(*problem_.model);
}

void GoodputColumns::LayOut(Role role, const Counts& asked, double known) {
  if (!MayHold(asked)) return;
  const Counts set = twins_.FirstCopy(asked);
  const auto [at, fresh] = tried_.try_emplace(std::pair(role, set));
  Tried& tried = at->second;
  if (!fresh && tried.known <= known) return;
  tried.known = known;
  ++laid_out_;
  ReplicaShaping::Devices devices;
  for (const int p : order_) {
    if (set[static_cast<size_t>(p)] > 0) devices.emplace_back(p, set[static_cast<size_t>(p)]);
  }
  const PlacedReplica replica = role == Role::kBoth ? layouts_.Shape(devices, known)
                                                    : layouts_.ShapeSplit(role, devices, known);
  if (replica.stages.empty()) return;
  tried = {0, DevicesByPool(replica.stages, pools_.size())};
  program_.Add(replica);
}

std::optional<PlacedReplica> GoodputColumns::LaidOut(Role role, const Counts& set) {
  if (const PlacedReplica* known = program_.Find(role, set); known != nullptr)
    return twins_.FromFirstCopy(set, *known);
  LayOut(role, set, 0);
  const auto tried = tried_.find(std::pair(role, twins_.FirstCopy(set)));
  if (tried == tried_.end() || tried->second.used.empty()) return std::nullopt;
  const std::optional<Counts> used = twins_.CopyWithin(tried->second.used, set);
  const PlacedReplica* laid_out = program_.Find(role, tried->second.used);
  if (!used || laid_out == nullptr) return std::nullopt;
  return twins_.FromFirstCopy(*used, *laid_out);
}

void GoodputColumns::OfferRoles(const Counts& set) { OfferJoined(set, {}); }

void GoodputColumns::OfferJoined(const Counts& set, const std::vector<Counts>& parts) {
  for (const Role role : {Role::kBoth, Role::kPrefill, Role::kDecode}) {
    if (role != Role::kBoth && !groups_.MaySplit()) return;
    double known = 0;
    for (const Counts& part : parts) {
      const PlacedReplica* replica = program_.Find(role, part);
      if (replica != nullptr) known += replica->rate.requests_per_second;
    }
    LayOut(role, set, known);
  }
}

void GoodputColumns::OfferFinely(const Counts& set) {
  const auto offer = [&](const Counts& some) {
    if (fine_.size() >= kMaxFine || problem_.watch.Stopped() || !fine_.insert(some).second) return;
    program_.Add(groups_.ReplicaOf({Role::kBoth, some}));
  };
  offer(set);
  for (size_t p = 0; p < set.size(); ++p) {
    Counts alone(set.size(), 0);
    for (const int devices : {set[p], set[p] / 2}) {
      alone[p] = devices;
      if (devices > 0) offer(alone);
    }
  }
}

void GoodputColumns::OfferAsItIs(PlacedReplica replica) {
  if (replica.role != Role::kBoth || replica.stages.empty()) return;
  replica.rate = groups_.judge()->RateOf(SpecOf(problem_, replica));
  program_.Add(replica);
  const auto from = static_cast<size_t>(replica.stages.front().pool);
  const int devices = DevicesByPool(replica.stages, pools_.size())[from];
  for (const LayoutStage& stage : replica.stages) {
    if (stage.pool != static_cast<int>(from)) return;
  }
  for (size_t p = 0; p < pools_.size() && !problem_.watch.Stopped(); ++p) {
    if (p == from || pools_[p].spec != pools_[from].spec || pools_[p].count < devices) continue;
    for (LayoutStage& stage : replica.stages) stage.pool = static_cast<int>(p);
    replica.rate = groups_.judge()->RateOf(SpecOf(problem_, replica));
    program_.Add(replica);
  }
}

void GoodputColumns::Polish(int64_t most_judged) {
  for (PlacedReplica& replica : program_.NearPrice(kNearEnough)) {
    program_.Add(PolishReplica(problem_, std::move(replica), groups_.judge(), &most_judged));
  }
}

void GoodputColumns::OfferAlone() {
  const std::vector<MachineNode>& machines = problem_.graph->machines();
  const auto group = [&](size_t p) {
    return machines[static_cast<size_t>(pools_[p].machine)].group;
  };
  for (size_t p = 0; p < pools_.size() && !problem_.watch.Stopped(); ++p) {
    Counts set(pools_.size(), 0);
    for (int devices = 1; devices <= pools_[p].count; ++devices) {
      const Counts fewer = set;
      set[p] = devices;
      OfferJoined(set, {fewer});
    }
    Counts alike = set;
    for (size_t q = p + 1; q < pools_.size(); ++q) {
      if (pools_[q].spec != pools_[p].spec || group(q) != group(p)) continue;
      alike[q] = pools_[q].count;
      OfferRoles(alike);
    }
  }
}

// Pools by place, so that those that are near each other come first.
void GoodputColumns::OfferTogether(int most_sets) {
  std::set<Counts> seen;
  std::vector<std::vector<size_t>> last;
  for (size_t i = 0; i < order_.size(); ++i) last.push_back({i});
  for (size_t size = 2; size <= order_.size(); ++size) {
    std::vector<std::vector<size_t>> next;
    for (const std::vector<size_t>& members : last) {
      for (size_t i = members.back() + 1; i < order_.size(); ++i) {
        next.push_back(members);
        next.back().push_back(i);
        Counts all(pools_.size(), 0);
        std::vector<Counts> parts;
        for (const size_t member : next.back()) {
          const auto p = static_cast<size_t>(order_[member]);
          Counts part(pools_.size(), 0);
          all[p] = part[p] = pools_[p].count;
          parts.push_back(std::move(part));
        }
        if (!seen.insert(twins_.FirstCopy(all)).second) {
          next.pop_back();
          continue;
        }
        if (--most_sets < 0 || problem_.watch.Stopped()) return;
        OfferJoined(all, parts);
      }
    }
    last = std::move(next);
  }
}

void GoodputColumns::Consider(Role role, const Counts& set) {
  if (Exhausted()) return;
  if (role != Role::kBoth && !(split_ && groups_.MaySplit())) return;
  const double worth = program_.WorthOf(role, set);
  if (worth > 0) LayOut(role, set, kNearPrice * program_.PriceOf(set) / worth);
}

void GoodputColumns::LookAround(const DeviceGroup& column, const Grouping& used) {
  const auto& [role, set] = column;
  for (const Role other : {Role::kBoth, Role::kPrefill, Role::kDecode}) {
    if (other != role) Consider(other, set);
  }
  for (const int p : order_) {
    const auto at = static_cast<size_t>(p);
    Counts near = set;
    const int own = set[at], more = pools_[at].count - own;
    for (const int part : more > 0 ? PartsTried(more) : std::vector<int>()) {
      near[at] = own + part;
      Consider(role, near);
    }
    for (const int part : own > 0 ? PartsTried(own) : std::vector<int>()) {
      near[at] = own - part;
      Consider(role, near);
      for (const int q : order_) {
        const auto to = static_cast<size_t>(q);
        if (q == p || pools_[to].count - set[to] < part) continue;
        near[to] += part;
        Consider(role, near);
        near[to] -= part;
      }
    }
  }
  Counts free;
  for (size_t p = 0; p < set.size(); ++p) free.push_back(pools_[p].count - set[p]);
  for (const DeviceGroup& other : used) {
    std::optional<Counts> joined = twins_.CopyWithin(other.counts, free);
    if (!joined) continue;
    for (size_t p = 0; p < set.size(); ++p) (*joined)[p] += set[p];
    Consider(role, *joined);
  }
  Counts half = set;
  for (int& devices : half) devices /= 2;
  Consider(role, half);
}

void GoodputColumns::Generate(bool split, int64_t most_laid_out) {
  split_ = split;
  limit_ = laid_out_ + most_laid_out;
  double before = -1;
  for (int round = 0; round < kMaxRounds; ++round) {
    if (!program_.Relax(split) || program_.value() <= before || Exhausted()) return;
    before = program_.value() * (1 + 1e-6);
    const Grouping used = program_.used();
    for (const DeviceGroup& column : used) LookAround(column, used);
  }
}

}  // namespace tessera::scheduler
