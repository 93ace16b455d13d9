#include "scheduler/search/best/placement_moves.h"

#include <algorithm>
#include <utility>

namespace tessera::scheduler {
namespace {

constexpr double kBetter = 1 + 1e-7;
constexpr double kNearlyAsGood = 0.97;    // before stages change order and widths
constexpr int64_t kMaxFutile = 11000;     // sets of stages judged in moves that lose at first
constexpr int kRefineFurtherUpTo = 24;    // devices
constexpr int kCoarseSteps = 20;          // that all layers are dealt in
constexpr int64_t kMaxLayoutWork = 1000;  // those times device sets
constexpr size_t kMaxKicksOfTwo = 16;     // kept of one pair of replicas

// All of them, half of them, one: what a move takes of so many devices.
std::vector<int> Parts(int devices) {
  std::vector<int> parts = {devices};
  if (devices > 2) parts.push_back(devices / 2);
  if (devices > 1) parts.push_back(1);
  return parts;
}

template <typename Member>
double RateOf(const std::vector<Member>& members) {
  double rate = 0;
  for (const Member& member : members) rate += member.rate();
  return rate;
}

}  // namespace

PlacementMoves::PlacementMoves(const PlacementProblem& problem, StageShapes* shapes)
    : problem_(problem), shaping_(problem, shapes), order_(PoolsByPlace(*problem.graph)) {}

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

// Most that are judged never join.
void PlacementMoves::Join(Member member) {
  std::vector<int> key;
  for (const LayoutStage& stage : member.replica.stages)
    key.insert(key.end(), {stage.pool, stage.width, stage.layers});
  member.id = ids_.try_emplace(std::move(key), static_cast<int>(ids_.size())).first->second;
  now_.members.push_back(std::move(member));
}

PlacementMoves::Member PlacementMoves::Shaped(const Counts& counts, const Member& like,
                                              const std::vector<int>& changed) {
  return MemberOf(
      shaping_.ShapeLike(DevicesOf(counts), ReplicaShaping::WidthsOf(like.replica), changed));
}

PlacementMoves::Member PlacementMoves::ShapedAnew(const Counts& counts) {
  return MemberOf(shaping_.Shape(DevicesOf(counts)));
}

double PlacementMoves::State::rate() const { return RateOf(members); }

PlacementMoves::Ids PlacementMoves::IdsOf(const std::vector<size_t>& old) const {
  return {now_.members[old[0]].id, old.size() > 1 ? now_.members[old[1]].id : -1};
}

void PlacementMoves::Replace(const std::vector<size_t>& old, std::vector<Member> fresh) {
  const auto count = [&](const Member& member, int sign) {
    for (size_t p = 0; p < now_.free.size(); ++p) now_.free[p] += sign * member.counts[p];
    now_.usd_per_hour -= sign * member.replica.usd_per_hour;
  };
  for (auto i = old.rbegin(); i != old.rend(); ++i) {
    count(now_.members[*i], 1);
    now_.members.erase(now_.members.begin() + static_cast<long>(*i));
  }
  for (Member& member : fresh) {
    if (member.rate() <= 0) continue;
    count(member, -1);
    Join(std::move(member));
  }
  std::vector<int> key = {-1};
  key.insert(key.end(), now_.free.begin(), now_.free.end());
  now_.free_id = ids_.try_emplace(std::move(key), static_cast<int>(ids_.size())).first->second;
}

void PlacementMoves::Remember(const std::vector<size_t>& old, std::vector<Member> fresh,
                              double change) {
  std::vector<Kick>& kicks = kicks_[IdsOf(old)];
  if (kicks.size() == kMaxKicksOfTwo && kicks.back().change >= change) return;
  for (const Kick& kick : kicks) {
    if (kick.change == change) return;  // the same in other words
  }
  const auto at = std::find_if(kicks.begin(), kicks.end(),
                               [&](const Kick& kick) { return kick.change < change; });
  kicks.insert(at, {change, std::move(fresh), false});
  if (kicks.size() > kMaxKicksOfTwo) kicks.pop_back();
}

bool PlacementMoves::Take(const std::vector<size_t>& old, std::vector<Member> fresh) {
  double before = 0, usd = now_.usd_per_hour;
  for (const size_t i : old) {
    before += now_.members[i].rate();
    usd -= now_.members[i].replica.usd_per_hour;
  }
  for (const Member& member : fresh) usd += member.replica.usd_per_hour;
  if (problem_.goal == Goal::kBudget && usd > problem_.budget_usd_per_hour * (1 + 1e-12))
    return false;
  double after = RateOf(fresh);
  if (after > before * kNearlyAsGood && after <= before * kBetter) {
    for (Member& member : fresh) member = MemberOf(shaping_.Refined(member.replica, care_));
    after = RateOf(fresh);
  }
  for (const Member& member : fresh) {
    if (std::find(barred_.begin(), barred_.end(), member.counts) == barred_.end()) continue;
    was_barred_ = true;
    return false;
  }
  if (after > before * kBetter) {
    Replace(old, std::move(fresh));
    return true;
  }
  if (escape_ && after > 0 && fresh[0].counts != now_.members[old[0]].counts)
    Remember(old, std::move(fresh), after - before);
  return false;
}

bool PlacementMoves::LayOutAnew(size_t i) {
  if (Take({i}, {ShapedAnew(now_.members[i].counts)})) return true;
  return Take({i}, {MemberOf(shaping_.Refined(now_.members[i].replica, care_))});
}

bool PlacementMoves::GiveFree(size_t i) {
  for (const int p : order_) {
    const int devices = now_.free[static_cast<size_t>(p)];
    if (devices == 0) continue;
    for (const int part : Parts(devices)) {
      if (Exhausted()) return false;
      Counts counts = now_.members[i].counts;
      counts[static_cast<size_t>(p)] += part;
      if (Take({i}, {Shaped(counts, now_.members[i], {p})})) return true;
    }
  }
  return false;
}

// Idle devices may leave the others a better order, or be what another replica lacks.
bool PlacementMoves::TakeAway(size_t i) {
  for (const int p : order_) {
    const int own = now_.members[i].counts[static_cast<size_t>(p)];
    for (const int part : own > 0 ? Parts(own) : std::vector<int>()) {
      if (Exhausted()) return false;
      Counts counts = now_.members[i].counts;
      counts[static_cast<size_t>(p)] -= part;
      if (Take({i}, {Shaped(counts, now_.members[i], {p})})) return true;
    }
  }
  return false;
}

bool PlacementMoves::ExchangeFree(size_t i) {
  for (const int p : order_) {
    const int own = now_.members[i].counts[static_cast<size_t>(p)];
    if (own == 0) continue;
    for (const int q : order_) {
      const int devices = now_.free[static_cast<size_t>(q)];
      if (devices == 0 || q == p) continue;
      if (Exhausted()) return false;
      Counts counts = now_.members[i].counts;
      counts[static_cast<size_t>(p)] = 0;
      counts[static_cast<size_t>(q)] += std::min(own, devices);
      if (Take({i}, {Shaped(counts, now_.members[i], {q})})) return true;
    }
  }
  return false;
}

// Free devices that hold no replica may do so with some of this one's.
bool PlacementMoves::JoinFree(size_t i) {
  if (std::none_of(now_.free.begin(), now_.free.end(), [](int count) { return count > 0; }))
    return false;
  for (const int p : order_) {
    const int own = now_.members[i].counts[static_cast<size_t>(p)];
    for (const int part : own > 0 ? Parts(own) : std::vector<int>()) {
      if (Exhausted()) return false;
      Counts less = now_.members[i].counts, joined = now_.free;
      less[static_cast<size_t>(p)] -= part;
      joined[static_cast<size_t>(p)] += part;
      Member fresh = ShapedAnew(joined);
      if (fresh.rate() <= 0) continue;
      if (Take({i}, {Shaped(less, now_.members[i], {p}), std::move(fresh)})) return true;
    }
  }
  return false;
}

bool PlacementMoves::MoveBetween(size_t from, size_t to) {
  for (const int p : order_) {
    const int own = now_.members[from].counts[static_cast<size_t>(p)];
    for (const int part : own > 0 ? Parts(own) : std::vector<int>()) {
      if (Exhausted()) return false;
      Counts less = now_.members[from].counts, more = now_.members[to].counts;
      less[static_cast<size_t>(p)] -= part;
      more[static_cast<size_t>(p)] += part;
      Member gains = Shaped(more, now_.members[to], {p});
      if (gains.rate() <= now_.members[to].rate()) continue;
      Member loses = Shaped(less, now_.members[from], {p});
      if (Take({std::min(from, to), std::max(from, to)}, {std::move(loses), std::move(gains)}))
        return true;
    }
  }
  return false;
}

bool PlacementMoves::ExchangeBetween(size_t i, size_t j) {
  for (const int p : order_) {
    const int of_i = now_.members[i].counts[static_cast<size_t>(p)];
    if (of_i == 0) continue;
    for (const int q : order_) {
      const int of_j = now_.members[j].counts[static_cast<size_t>(q)];
      if (of_j == 0 || p == q) continue;
      if (Exhausted()) return false;
      const int part = std::min(of_i, of_j);
      Counts a = now_.members[i].counts, b = now_.members[j].counts;
      a[static_cast<size_t>(p)] -= part;
      b[static_cast<size_t>(p)] += part;
      b[static_cast<size_t>(q)] -= part;
      a[static_cast<size_t>(q)] += part;
      Member first = Shaped(a, now_.members[i], {p, q});
      Member second = Shaped(b, now_.members[j], {p, q});
      if (Take({std::min(i, j), std::max(i, j)}, {std::move(first), std::move(second)}))
        return true;
    }
  }
  return false;
}

bool PlacementMoves::Merge(size_t i, size_t j) {
  Counts counts = now_.members[i].counts;
  for (size_t p = 0; p < counts.size(); ++p) counts[p] += now_.members[j].counts[p];
  return Take({std::min(i, j), std::max(i, j)}, {ShapedAnew(counts)});
}

// Before or within each pool, in the order of places.
bool PlacementMoves::CutInTwo(size_t i) {
  Counts first(order_.size(), 0), second = now_.members[i].counts;
  for (const int p : order_) {
    const int own = now_.members[i].counts[static_cast<size_t>(p)];
    for (const int part : {own / 2, own - own / 2}) {
      if (part == 0) continue;
      if (Exhausted()) return false;
      first[static_cast<size_t>(p)] += part;
      second[static_cast<size_t>(p)] -= part;
      if (Take({i}, {ShapedAnew(first), ShapedAnew(second)})) return true;
    }
  }
  return false;
}

bool PlacementMoves::MoveOne(size_t i) {
  const std::vector<int> key = {now_.members[i].id, now_.free_id};
  if (looked_at_.contains(key)) return false;
  was_barred_ = false;
  if (LayOutAnew(i) || GiveFree(i) || TakeAway(i) || ExchangeFree(i) || JoinFree(i) ||
      CutInTwo(i)) {
    return true;
  }
  if (!was_barred_ && !Exhausted() && problem_.goal != Goal::kBudget) looked_at_.insert(key);
  return false;
}

bool PlacementMoves::MoveTwo(size_t i, size_t j) {
  const std::vector<int> key = {now_.members[i].id, now_.members[j].id, -1};
  if (looked_at_.contains(key)) return false;
  was_barred_ = false;
  if (MoveBetween(i, j) || MoveBetween(j, i) || Merge(i, j) || ExchangeBetween(i, j)) return true;
  if (!was_barred_ && !Exhausted() && problem_.goal != Goal::kBudget) looked_at_.insert(key);
  return false;
}

void PlacementMoves::Descend() {
  bool better = true;
  while (better && !Exhausted()) {
    better = false;
    for (size_t i = 0; i < now_.members.size() && !Exhausted(); ++i) better = MoveOne(i) || better;
    for (size_t i = 0; i < now_.members.size() && !Exhausted(); ++i) {
      for (size_t j = i + 1; j < now_.members.size() && !Exhausted(); ++j)
        better = MoveTwo(i, j) || better;
    }
  }
}

PlacementMoves::Kick* PlacementMoves::BestKick(std::vector<size_t>* old) {
  Kick* best = nullptr;
  const auto consider = [&](const std::vector<size_t>& members) {
    const auto known = kicks_.find(IdsOf(members));
    if (known == kicks_.end()) return;
    for (Kick& kick : known->second) {
      if (kick.tried || (best != nullptr && kick.change <= best->change)) continue;
      Counts left = now_.free;  // who gave free devices to a member wants them still free
      for (size_t p = 0; p < left.size(); ++p) {
        for (const size_t i : members) left[p] += now_.members[i].counts[p];
        for (const Member& member : kick.fresh) left[p] -= member.counts[p];
      }
      if (std::any_of(left.begin(), left.end(), [](int count) { return count < 0; })) continue;
      best = &kick;
      *old = members;
    }
  };
  for (size_t i = 0; i < now_.members.size(); ++i) {
    consider({i});
    for (size_t j = i + 1; j < now_.members.size(); ++j) consider({i, j});
  }
  return best;
}

void PlacementMoves::Escape() {
  std::vector<size_t> old;
  int64_t gained = shaping_.judged();  // when that helped last
  while (!Exhausted() && shaping_.judged() - gained < kMaxFutile) {
    Kick* kick = BestKick(&old);
    if (kick == nullptr) return;
    kick->tried = true;
    const State before = now_;
    for (const size_t i : old) barred_.push_back(now_.members[i].counts);
    Replace(old, kick->fresh);
    Descend();
    barred_.clear();
    if (now_.rate() <= before.rate() * kBetter) {
      now_ = before;
    } else {
      gained = shaping_.judged();
      Descend();
    }
  }
}

// By the program that looks at all stages of a device set, as quickly as it can: with many layers
// at a time. The replica itself where that takes long or leads to nothing near it.
PlacedReplica PlacementMoves::LaidOutCoarsely(PlacedReplica replica) const {
  LayoutProblem layout;
  layout.model = problem_.model;
  layout.graph = problem_.graph;
  layout.lengths = MomentsOf(problem_.samples);
  layout.options = problem_.options;
  layout.layer_step = (problem_.model->layers + kCoarseSteps - 1) / kCoarseSteps;
  layout.refine = false;
  layout.known_rate = kNearlyAsGood * replica.rate.requests_per_second;
  layout.stop = problem_.watch.stop;
  const Counts counts = MemberOf(replica).counts;
  std::vector<int> pools;
  int64_t work = kCoarseSteps;
  for (size_t p = 0; p < counts.size(); ++p) {
    if (counts[p] == 0) continue;
    const DevicePool& pool = problem_.graph->pools()[p];
    pools.push_back(static_cast<int>(p));
    layout.pools.push_back({pool.spec, pool.machine, counts[p]});
    work *= counts[p] + 1;
  }
  if (work > kMaxLayoutWork) return replica;
  Layout best = BestLayout(layout);
  if (best.stages.empty()) return replica;
  for (LayoutStage& stage : best.stages) stage.pool = pools[static_cast<size_t>(stage.pool)];
  replica.stages = std::move(best.stages);
  replica.rate = best.rate;
  return replica;
}

void PlacementMoves::Improve(ClassPlacement* at, int64_t most_judged, bool escape) {
  if (problem_.goal == Goal::kPrice || MomentsOf(problem_.samples).decode_steps <= 0) return;
  limit_ = shaping_.judged() + most_judged;
  escape_ = escape;
  care_ = ReplicaShaping::Care::kSome;
  now_ = {};
  now_.free = at->free();
  std::vector<PlacedReplica> others;
  for (const PlacedReplica& replica : at->replicas()) {
    Member member = MemberOf(replica);
    now_.usd_per_hour += member.replica.usd_per_hour;
    if (replica.role == Role::kBoth) {
      Join(std::move(member));
    } else {
      others.push_back(replica);
    }
  }
  Replace({}, {});
  Descend();
  if (escape_) Escape();
  care_ = ReplicaShaping::Care::kFull;
  looked_at_.clear();
  limit_ = shaping_.judged() + most_judged / 4;
  Descend();
  if (problem_.graph->devices() <= kRefineFurtherUpTo && !problem_.watch.Stopped()) {
    for (Member& member : now_.members) {
      for (const PlacedReplica& start : {member.replica, LaidOutCoarsely(member.replica)}) {
        PlacedReplica further = shaping_.RefinedFurther(start);
        if (further.rate.requests_per_second > member.rate() * kBetter)
          member = MemberOf(std::move(further));
      }
    }
  }
  ClassPlacement improved(problem_);
  for (PlacedReplica& replica : others) improved.Put(std::move(replica));
  for (Member& member : now_.members) improved.Put(std::move(member.replica));
  *at = std::move(improved);
}

}  // namespace tessera::scheduler
