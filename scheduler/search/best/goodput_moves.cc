#include "scheduler/search/best/goodput_moves.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "scheduler/search/layout/assemble.h"
#include "scheduler/search/layout/rate_program.h"

namespace tessera::scheduler {
namespace {

constexpr double kWorthMoving = 1 + 1e-3;
constexpr size_t kJudgedTogether = 6;
constexpr size_t kMaxJudgedPerStep = 48;
constexpr Role kRoles[] = {Role::kBoth, Role::kPrefill, Role::kDecode};

bool Any(const std::vector<int>& set) {
  return std::any_of(set.begin(), set.end(), [](int devices) { return devices > 0; });
}

}  // namespace

GoodputMoves::GoodputMoves(const PlacementProblem& problem, GroupLayouts* groups,
                           GoodputColumns* columns)
    : problem_(problem), pools_(problem.graph->pools()), groups_(*groups), columns_(*columns) {}

double GoodputMoves::Estimate(const std::vector<PlacedReplica>& replicas) const {
  double alone = 0, prefill = 0, decode = 0;
  std::vector<const PlacedReplica*> split;
  for (const PlacedReplica& replica : replicas) {
    const double rate = replica.rate.requests_per_second;
    (replica.role == Role::kBoth      ? alone
     : replica.role == Role::kPrefill ? prefill
                                      : decode) += rate;
    if (replica.role != Role::kBoth) split.push_back(&replica);
  }
  double pairs = std::min(prefill, decode);
  if (pairs <= 0 || alone + pairs <= best_.requests_per_second * kWorthMoving) return alone + pairs;
  const absl::StatusOr<std::vector<double>> rates =
      SolveTransport(MakeRateProgram(problem_, groups_.lengths(), split));
  if (!rates.ok()) return alone;
  pairs = 0;
  for (const double rate : *rates) pairs += rate;
  return alone + pairs;
}

void GoodputMoves::Offer(const std::vector<size_t>& gone, const Grouping& come) {
  if (problem_.watch.Stopped()) return;
  Neighbour neighbour;
  for (const DeviceGroup& part : come) {
    if (!Any(part.counts)) continue;
    std::optional<PlacedReplica> replica = columns_.LaidOut(part.role, part.counts);
    if (replica) neighbour.replicas.push_back(*std::move(replica));
  }
  for (size_t i = 0; i < best_.replicas.size(); ++i) {
    if (std::find(gone.begin(), gone.end(), i) == gone.end())
      neighbour.replicas.push_back(best_.replicas[i]);
  }
  neighbour.estimate = Estimate(neighbour.replicas);
  if (neighbour.estimate <= best_.requests_per_second * kWorthMoving) return;
  std::vector<std::pair<Role, Counts>> key;
  for (const PlacedReplica& replica : neighbour.replicas) {
    const Counts set = DevicesByPool(replica.stages, pools_.size());
    key.emplace_back(replica.role, columns_.twins().FirstCopy(set));
  }
  std::sort(key.begin(), key.end());
  if (!seen_.insert(std::move(key)).second) return;
  neighbours_.push_back(std::move(neighbour));
  if (neighbours_.size() > 4 * kMaxJudgedPerStep) KeepMostPromising();
}

void GoodputMoves::KeepMostPromising() {
  std::stable_sort(neighbours_.begin(), neighbours_.end(),
                   [](const Neighbour& a, const Neighbour& b) { return a.estimate > b.estimate; });
  if (neighbours_.size() > kMaxJudgedPerStep) neighbours_.resize(kMaxJudgedPerStep);
}

void GoodputMoves::OfferTransfers() {
  const size_t count = parts_.size();
  for (size_t from = 0; from <= count; ++from) {  // count: what is idle
    const Counts set = from < count ? parts_[from].counts : idle_;
    for (size_t p = 0; p < set.size(); ++p) {
      if (set[p] == 0) continue;
      for (const int devices : PartsTried(set[p])) {
        Counts less = set, alone(set.size(), 0);
        less[p] -= devices;
        alone[p] = devices;
        std::vector<size_t> gone;
        Grouping come;
        if (from < count) {
          gone.push_back(from);
          come.push_back({parts_[from].role, less});
        }
        for (size_t to = 0; to < count; ++to) {
          if (to == from) continue;
          DeviceGroup more = parts_[to];
          more.counts[p] += devices;
          gone.push_back(to);
          come.push_back(more);
          Offer(gone, come);
          gone.pop_back();
          come.pop_back();
        }
        for (const Role role : kRoles) {
          if (role != Role::kBoth && !groups_.MaySplit()) continue;
          come.push_back({role, alone});
          Offer(gone, come);
          come.pop_back();
        }
      }
    }
  }
}

void GoodputMoves::OfferRoles() {
  if (!groups_.MaySplit()) return;
  for (size_t i = 0; i < parts_.size(); ++i) {
    for (const Role role : kRoles) {
      if (role == parts_[i].role) continue;
      Offer({i}, {{role, parts_[i].counts}});
      for (size_t j = i + 1; j < parts_.size(); ++j) {
        for (const Role other : kRoles) {
          if (other == parts_[j].role) continue;
          Offer({i, j}, {{role, parts_[i].counts}, {other, parts_[j].counts}});
        }
      }
    }
  }
}

// A replica's devices of a pool, or half of all, against the others.
void GoodputMoves::OfferCuts() {
  const std::pair<Role, Role> roles[] = {{Role::kBoth, Role::kBoth},
                                         {Role::kPrefill, Role::kDecode},
                                         {Role::kDecode, Role::kPrefill},
                                         {Role::kPrefill, Role::kPrefill},
                                         {Role::kDecode, Role::kDecode}};
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Counts& set = parts_[i].counts;
    for (size_t p = 0; p <= set.size(); ++p) {
      Counts one(set.size(), 0), other = set;
      for (size_t q = 0; q < set.size(); ++q) {
        if (q == p) one[q] = set[q];
        if (p == set.size()) one[q] = set[q] / 2;
        other[q] -= one[q];
      }
      if (!Any(one) || !Any(other)) continue;
      for (const auto& [first, second] : roles) {
        if (first != Role::kBoth && !groups_.MaySplit()) continue;
        Offer({i}, {{first, one}, {second, other}});
      }
    }
  }
}

void GoodputMoves::OfferJoined() {
  for (size_t i = 0; i < parts_.size(); ++i) {
    for (size_t j = i + 1; j < parts_.size(); ++j) {
      Counts joined = parts_[i].counts;
      for (size_t p = 0; p < joined.size(); ++p) joined[p] += parts_[j].counts[p];
      Offer({i, j}, {{parts_[i].role, joined}});
      if (parts_[j].role != parts_[i].role) Offer({i, j}, {{parts_[j].role, joined}});
    }
  }
}

void GoodputMoves::OfferAll() {
  parts_.clear();
  idle_.clear();
  for (const DevicePool& pool : pools_) idle_.push_back(pool.count);
  for (const PlacedReplica& replica : best_.replicas) {
    parts_.push_back({replica.role, DevicesByPool(replica.stages, pools_.size())});
    for (size_t p = 0; p < idle_.size(); ++p) idle_[p] -= parts_.back().counts[p];
  }
  neighbours_.clear();
  seen_.clear();
  OfferTransfers();
  OfferRoles();
  OfferCuts();
  OfferJoined();
}

bool GoodputMoves::Step(int64_t most_judged) {
  OfferAll();
  KeepMostPromising();
  bool moved = false;
  for (size_t n = 0; n < neighbours_.size(); ++n) {
    if (n > 0 && n % kJudgedTogether == 0 && moved) break;
    if (judged_ >= most_judged || problem_.watch.Stopped()) break;
    if (neighbours_[n].estimate <= best_.requests_per_second * kWorthMoving) continue;
    ++judged_;
    absl::StatusOr<Placement> placement =
        Assemble(problem_, std::move(neighbours_[n].replicas), groups_.judge());
    if (!placement.ok() ||
        placement->requests_per_second <= best_.requests_per_second * kWorthMoving)
      continue;
    best_ = *std::move(placement);
    moved = true;
  }
  return moved && judged_ < most_judged;
}

Placement GoodputMoves::Improve(Placement start, int64_t most_judged) {
  best_ = std::move(start);
  judged_ = 0;
  while (!problem_.watch.Stopped() && Step(most_judged)) {
  }
  return std::move(best_);
}

}  // namespace tessera::scheduler
