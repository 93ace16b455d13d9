#include "scheduler/search/placement_moves.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace tessera::scheduler {
namespace {

constexpr double kBetter = 1 + 1e-7;

// All of them, half of them, one: what a move takes of so many devices.
std::vector<int> Parts(int devices) {
  std::vector<int> parts = {devices};
  if (devices > 2) parts.push_back(devices / 2);
  if (devices > 1) parts.push_back(1);
  return parts;
}

}  // namespace

PlacementMoves::PlacementMoves(const PlacementProblem& problem, StageShapes* shapes)
    : problem_(problem), shaping_(problem, shapes), order_(problem.graph->pools().size()) {
  std::iota(order_.begin(), order_.end(), 0);
  const auto place = [&](int p) {
    const int machine = problem.graph->pools()[static_cast<size_t>(p)].machine;
    const MachineNode& node = problem.graph->machines()[static_cast<size_t>(machine)];
    return std::tuple(node.site, node.rack, machine, p);
  };
  std::sort(order_.begin(), order_.end(), [&](int a, int b) { return place(a) < place(b); });
}

ReplicaShaping::Devices PlacementMoves::DevicesOf(const Counts& counts) const {
  ReplicaShaping::Devices devices;
  for (const int p : order_) {
    if (counts[static_cast<size_t>(p)] > 0) devices.emplace_back(p, counts[static_cast<size_t>(p)]);
  }
  return devices;
}

PlacementMoves::Member PlacementMoves::MemberOf(PlacedReplica replica) const {
  Member member;
  member.counts.assign(problem_.graph->pools().size(), 0);
  replica.usd_per_hour = 0;
  for (const LayoutStage& stage : replica.stages) {
    const size_t pool = static_cast<size_t>(stage.pool);
    member.counts[pool] += stage.width;
    replica.usd_per_hour += stage.width * problem_.graph->pools()[pool].price_usd_per_hour;
  }
  member.replica = std::move(replica);
  return member;
}

PlacementMoves::Member PlacementMoves::Shaped(const Counts& counts, const Member& like,
                                              const std::vector<int>& changed) {
  return MemberOf(
      shaping_.ShapeLike(DevicesOf(counts), ReplicaShaping::WidthsOf(like.replica), changed));
}

bool PlacementMoves::Affordable(double more_usd) const {
  return problem_.goal != Goal::kBudget ||
         usd_per_hour_ + more_usd <= problem_.budget_usd_per_hour * (1 + 1e-12);
}

bool PlacementMoves::Take(const std::vector<size_t>& old, std::vector<Member> fresh) {
  double gain = 0, before = 0, usd = 0;
  for (const size_t i : old) {
    before += members_[i].rate();
    usd -= members_[i].replica.usd_per_hour;
  }
  for (const Member& member : fresh) {
    gain += member.rate();
    usd += member.replica.usd_per_hour;
  }
  if (gain <= before * kBetter || !Affordable(usd)) return false;
  usd_per_hour_ += usd;
  const auto count = [&](const Member& member, int sign) {
    for (size_t p = 0; p < free_.size(); ++p) free_[p] += sign * member.counts[p];
  };
  for (auto i = old.rbegin(); i != old.rend(); ++i) {
    count(members_[*i], 1);
    members_.erase(members_.begin() + static_cast<long>(*i));
  }
  for (Member& member : fresh) {
    if (member.rate() <= 0) continue;
    count(member, -1);
    members_.push_back(std::move(member));
  }
  return true;
}

bool PlacementMoves::LayOutAnew(size_t i) {
  return Take({i}, {MemberOf(shaping_.Shape(DevicesOf(members_[i].counts)))});
}

bool PlacementMoves::GiveFree(size_t i) {
  for (const int p : order_) {
    const int devices = free_[static_cast<size_t>(p)];
    if (devices == 0) continue;
    for (const int part : Parts(devices)) {
      if (Exhausted()) return false;
      Counts counts = members_[i].counts;
      counts[static_cast<size_t>(p)] += part;
      if (Take({i}, {Shaped(counts, members_[i], {p})})) return true;
    }
  }
  return false;
}

bool PlacementMoves::ExchangeFree(size_t i) {
  for (const int p : order_) {
    const int own = members_[i].counts[static_cast<size_t>(p)];
    if (own == 0) continue;
    for (const int q : order_) {
      const int devices = free_[static_cast<size_t>(q)];
      if (devices == 0 || q == p) continue;
      if (Exhausted()) return false;
      Counts counts = members_[i].counts;
      counts[static_cast<size_t>(p)] = 0;
      counts[static_cast<size_t>(q)] += std::min(own, devices);
      if (Take({i}, {Shaped(counts, members_[i], {q})})) return true;
    }
  }
  return false;
}

bool PlacementMoves::MoveBetween(size_t from, size_t to) {
  for (const int p : order_) {
    const int own = members_[from].counts[static_cast<size_t>(p)];
    for (const int part : own > 0 ? Parts(own) : std::vector<int>()) {
      if (Exhausted()) return false;
      Counts less = members_[from].counts, more = members_[to].counts;
      less[static_cast<size_t>(p)] -= part;
      more[static_cast<size_t>(p)] += part;
      Member gains = Shaped(more, members_[to], {p});
      if (gains.rate() <= members_[to].rate()) continue;
      Member loses = Shaped(less, members_[from], {p});
      if (Take({std::min(from, to), std::max(from, to)}, {std::move(loses), std::move(gains)}))
        return true;
    }
  }
  return false;
}

bool PlacementMoves::ExchangeBetween(size_t i, size_t j) {
  for (const int p : order_) {
    const int of_i = members_[i].counts[static_cast<size_t>(p)];
    if (of_i == 0) continue;
    for (const int q : order_) {
      const int of_j = members_[j].counts[static_cast<size_t>(q)];
      if (of_j == 0 || p == q) continue;
      if (Exhausted()) return false;
      const int part = std::min(of_i, of_j);
      Counts a = members_[i].counts, b = members_[j].counts;
      a[static_cast<size_t>(p)] -= part;
      b[static_cast<size_t>(p)] += part;
      b[static_cast<size_t>(q)] -= part;
      a[static_cast<size_t>(q)] += part;
      Member first = Shaped(a, members_[i], {p, q});
      Member second = Shaped(b, members_[j], {p, q});
      if (Take({std::min(i, j), std::max(i, j)}, {std::move(first), std::move(second)}))
        return true;
    }
  }
  return false;
}

bool PlacementMoves::Merge(size_t i, size_t j) {
  Counts counts = members_[i].counts;
  for (size_t p = 0; p < counts.size(); ++p) counts[p] += members_[j].counts[p];
  return Take({std::min(i, j), std::max(i, j)}, {MemberOf(shaping_.Shape(DevicesOf(counts)))});
}

void PlacementMoves::Improve(ClassPlacement* at, int64_t most_judged) {
  if (problem_.goal == Goal::kPrice || MomentsOf(problem_.samples).decode_steps <= 0) return;
  limit_ = shaping_.judged() + most_judged;
  members_.clear();
  free_ = at->free();
  usd_per_hour_ = 0;
  std::vector<PlacedReplica> others;
  for (const PlacedReplica& replica : at->replicas()) {
    Member member = MemberOf(replica);
    usd_per_hour_ += member.replica.usd_per_hour;
    if (replica.role == Role::kBoth) {
      members_.push_back(std::move(member));
    } else {
      others.push_back(replica);
    }
  }
  bool better = true;
  while (better && !Exhausted()) {
    better = false;
    for (size_t i = 0; i < members_.size() && !Exhausted(); ++i) {
      const bool moved = LayOutAnew(i) || GiveFree(i) || ExchangeFree(i);
      better = moved || better;
    }
    for (size_t i = 0; i < members_.size() && !Exhausted(); ++i) {
      for (size_t j = 0; j < members_.size() && i < members_.size() && !Exhausted(); ++j) {
        if (i == j) continue;
        const bool moved = MoveBetween(i, j) || (i < j && (Merge(i, j) || ExchangeBetween(i, j)));
        better = moved || better;
      }
    }
  }
  ClassPlacement improved(problem_);
  for (PlacedReplica& replica : others) improved.Put(std::move(replica));
  for (Member& member : members_) improved.Put(std::move(member.replica));
  *at = std::move(improved);
}

}  // namespace tessera::scheduler
