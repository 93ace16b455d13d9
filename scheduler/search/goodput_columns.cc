#include "scheduler/search/goodput_columns.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "scheduler/search/linear_program.h"

namespace tessera::scheduler {
namespace {

constexpr double kPackingGap = 5e-4;
constexpr int kPackingNodes = 300;
constexpr size_t kMostPacked = 150;   // columns of a whole-number program
constexpr double kPackedFrom = 0.85;  // of their price
constexpr double kNearPrice = 0.97;   // of their price: columns that whole numbers may still need
constexpr double kUsed = 1e-6;
constexpr int kMostRounds = 20;
constexpr size_t kMostFine = 60;
constexpr double kAsGood = 0.99;    // of a column's rate
constexpr double kLeastKept = 0.8;  // of it, where it served less

std::vector<int> PartsOf(int devices) {
  std::vector<int> parts = {1};
  if (devices > 3) parts.push_back(devices / 2);
  if (devices > 1) parts.push_back(devices);
  return parts;
}

}  // namespace

GoodputColumns::GoodputColumns(const PlacementProblem& problem, GroupLayouts* groups)
    : problem_(problem),
      pools_(problem.graph->pools()),
      groups_(*groups),
      layouts_(problem, groups->judge()),
      order_(PoolsByPlace(*problem.graph)) {}

GoodputColumns::Counts GoodputColumns::UsedBy(const PlacedReplica& replica) const {
  return DevicesByPool(replica.stages, pools_.size());
}

// Of columns of equal role and devices the best stays.
void GoodputColumns::Add(const PlacedReplica& replica) {
  if (replica.stages.empty() || replica.rate.requests_per_second <= 0) return;
  Column column = {replica, UsedBy(replica), replica.rate.requests_per_second};
  const auto [at, fresh] =
      column_of_.emplace(std::pair(replica.role, column.used), columns_.size());
  if (fresh) {
    columns_.push_back(std::move(column));
  } else if (column.rate > columns_[at->second].rate) {
    columns_[at->second] = std::move(column);
  }
}

bool GoodputColumns::MayHold(const Counts& set) const {
  double bytes = 0;
  for (size_t p = 0; p < set.size(); ++p) bytes += set[p] * pools_[p].spec->memory_bytes;
  return bytes * problem_.options.memory.utilisation >=
         TotalParameters(*problem_.model) * problem_.model->weight_bytes_per_element;
}

void GoodputColumns::LayOut(Role role, const Counts& set, double known) {
  if (!MayHold(set)) return;
  const auto [tried, fresh] = tried_.try_emplace(std::pair(role, set), known);
  if (!fresh) {
    if (tried->second <= known) return;
    tried->second = known;
  }
  ++laid_out_;
  ReplicaShaping::Devices devices;
  for (const int p : order_) {
    if (set[static_cast<size_t>(p)] > 0) devices.emplace_back(p, set[static_cast<size_t>(p)]);
  }
  const PlacedReplica replica = role == Role::kBoth ? layouts_.Shape(devices, known)
                                                    : layouts_.ShapeSplit(role, devices, known);
  if (!replica.stages.empty()) tried->second = 0;
  Add(replica);
}

void GoodputColumns::OfferRoles(const Counts& set) {
  LayOut(Role::kBoth, set, 0);
  if (!groups_.MaySplit()) return;
  LayOut(Role::kPrefill, set, 0);
  LayOut(Role::kDecode, set, 0);
}

void GoodputColumns::OfferFinely(const Counts& set) {
  const auto offer = [&](const Counts& some) {
    if (fine_.size() >= kMostFine || problem_.watch.Stopped() || !fine_.insert(some).second) return;
    Add(groups_.ReplicaOf({Role::kBoth, some}));
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
  Add(replica);
  const auto from = static_cast<size_t>(replica.stages.front().pool);
  const int devices = UsedBy(replica)[from];
  for (const LayoutStage& stage : replica.stages) {
    if (stage.pool != static_cast<int>(from)) return;
  }
  for (size_t p = 0; p < pools_.size(); ++p) {
    if (p == from || pools_[p].spec != pools_[from].spec || pools_[p].count < devices) continue;
    for (LayoutStage& stage : replica.stages) stage.pool = static_cast<int>(p);
    replica.rate = groups_.judge()->RateOf(SpecOf(problem_, replica));
    Add(replica);
  }
}

void GoodputColumns::OfferAlone() {
  const std::vector<MachineNode>& machines = problem_.graph->machines();
  const auto site = [&](size_t p) { return machines[static_cast<size_t>(pools_[p].machine)].site; };
  for (size_t p = 0; p < pools_.size(); ++p) {
    Counts set(pools_.size(), 0);
    for (int devices = 1; devices <= pools_[p].count; ++devices) {
      set[p] = devices;
      OfferRoles(set);
    }
    Counts alike = set;
    for (size_t q = p + 1; q < pools_.size(); ++q) {
      if (pools_[q].spec != pools_[p].spec || site(q) != site(p)) continue;
      alike[q] = pools_[q].count;
      OfferRoles(alike);
    }
  }
}

double GoodputColumns::WorthOf(Role role) const {
  switch (role) {
    case Role::kBoth: return 1;
    case Role::kPrefill: return prefill_price_;
    case Role::kDecode: return 1 - prefill_price_;
  }
  return 0;
}

double GoodputColumns::PriceOf(const Counts& set) const {
  double price = 0;
  for (size_t p = 0; p < set.size(); ++p) price += set[p] * prices_[p];
  return price;
}

std::vector<size_t> GoodputColumns::Promising(bool split) const {
  std::vector<std::pair<double, size_t>> ranked;
  for (size_t c = 0; c < columns_.size(); ++c) {
    const Role role = columns_[c].replica.role;
    if (role != Role::kBoth && !split) continue;
    const double worth = columns_[c].rate * WorthOf(role);
    if (worth >= kPackedFrom * PriceOf(columns_[c].used))
      ranked.emplace_back(PriceOf(columns_[c].used) / worth, c);
  }
  std::sort(ranked.begin(), ranked.end());
  if (ranked.size() > kMostPacked) ranked.resize(kMostPacked);
  std::vector<size_t> chosen;
  for (const auto& [rank, c] : ranked) chosen.push_back(c);
  return chosen;
}

bool GoodputColumns::Relax(bool split, std::vector<double>* shares) {
  std::vector<size_t> all(columns_.size());
  std::iota(all.begin(), all.end(), size_t{0});
  return Solve(false, split, all, shares);
}

bool GoodputColumns::Solve(bool whole, bool split, const std::vector<size_t>& chosen,
                           std::vector<double>* values) {
  LinearProgram program;
  std::vector<int> rows, variables;
  for (const DevicePool& pool : pools_) rows.push_back(program.AddRow(-kUnbounded, pool.count));
  const int served = program.AddVariable(1, 0, split ? kUnbounded : 0, false);
  const int prefill = program.AddRow(-kUnbounded, 0), decode = program.AddRow(-kUnbounded, 0);
  program.AddTerm(prefill, served, 1);
  program.AddTerm(decode, served, 1);
  for (const size_t c : chosen) {
    const Column& column = columns_[c];
    const Role role = column.replica.role;
    const bool both = role == Role::kBoth;
    const int y =
        program.AddVariable(both ? column.rate : 0, 0, both || split ? kUnbounded : 0, whole);
    variables.push_back(y);
    for (size_t p = 0; p < pools_.size(); ++p) {
      if (column.used[p] > 0) program.AddTerm(rows[p], y, column.used[p]);
    }
    if (!both) program.AddTerm(role == Role::kPrefill ? prefill : decode, y, -column.rate);
  }
  const absl::StatusOr<LinearProgram::Solution> solution =
      program.Solve(!whole, kPackingGap, kPackingNodes);
  if (!solution.ok()) return false;
  values->clear();
  for (const int y : variables) values->push_back(solution->values[static_cast<size_t>(y)]);
  if (whole) {
    packed_value_ = solution->objective;
    return true;
  }

  value_ = solution->objective;
  prices_.clear();
  for (const int row : rows)
    prices_.push_back(std::max(0.0, solution->duals[static_cast<size_t>(row)]));
  prefill_price_ = std::clamp(solution->duals[static_cast<size_t>(prefill)], 0.0, 1.0);
  return true;
}

void GoodputColumns::Consider(Role role, const Counts& set) {
  if (Exhausted()) return;
  const double worth = WorthOf(role);
  if (worth <= 0 || (role != Role::kBoth && !groups_.MaySplit())) return;
  LayOut(role, set, kNearPrice * PriceOf(set) / worth);
}

void GoodputColumns::LookAround(size_t c, const std::vector<size_t>& used) {
  const Counts set = columns_[c].used;
  const Role role = columns_[c].replica.role;
  for (const Role other : {Role::kBoth, Role::kPrefill, Role::kDecode}) {
    if (other != role) Consider(other, set);
  }
  for (const int p : order_) {
    const auto at = static_cast<size_t>(p);
    Counts near = set;
    const int own = set[at], more = pools_[at].count - own;
    for (const int part : more > 0 ? PartsOf(more) : std::vector<int>()) {
      near[at] = own + part;
      Consider(role, near);
    }
    for (const int part : own > 0 ? PartsOf(own) : std::vector<int>()) {
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
  for (const size_t other : used) {
    Counts joined = set;
    bool there = true;
    for (size_t p = 0; p < joined.size(); ++p) {
      joined[p] += columns_[other].used[p];
      there = there && joined[p] <= pools_[p].count;
    }
    if (there) Consider(role, joined);
  }
  Counts half = set;
  for (int& devices : half) devices /= 2;
  Consider(role, half);
}

void GoodputColumns::Generate(int64_t most_laid_out) {
  limit_ = laid_out_ + most_laid_out;
  std::vector<double> shares;
  double before = -1;
  for (int round = 0; round < kMostRounds && !columns_.empty(); ++round) {
    if (!Relax(true, &shares) || value_ <= before || Exhausted()) return;
    before = value_ * (1 + 1e-6);
    std::vector<size_t> used;
    for (size_t c = 0; c < shares.size(); ++c) {
      if (shares[c] > kUsed) used.push_back(c);
    }
    for (const size_t c : used) LookAround(c, used);
  }
}

std::vector<PlacedReplica> GoodputColumns::Packed(bool split) {
  std::vector<double> copies;
  std::vector<PlacedReplica> replicas;
  packed_value_ = 0;
  if (columns_.empty() || !Relax(split, &copies)) return replicas;
  const std::vector<size_t> chosen = Promising(split);
  if (chosen.empty() || !Solve(true, split, chosen, &copies)) return replicas;
  for (size_t i = 0; i < chosen.size(); ++i)
    replicas.insert(replicas.end(), static_cast<size_t>(std::max(0L, std::lround(copies[i]))),
                    columns_[chosen[i]].replica);
  return replicas;
}

bool GoodputColumns::Learn(const std::vector<PlacedReplica>& dealt, const Placement& placement) {
  std::vector<double> served(dealt.size(), 0);
  for (const Share& share : placement.shares) {
    if (share.prefill == share.decode) continue;
    served[static_cast<size_t>(share.prefill)] += share.requests_per_second;
    served[static_cast<size_t>(share.decode)] += share.requests_per_second;
  }
  // Of replicas in place of one column the one that served most, so that it is not underrated.
  std::map<size_t, double> most;
  for (size_t i = 0; i < dealt.size(); ++i) {
    if (dealt[i].role == Role::kBoth) continue;
    double& rate = most[column_of_.at({dealt[i].role, UsedBy(dealt[i])})];
    rate = std::max(rate, served[i]);
  }
  bool learnt = false;
  for (const auto& [c, rate] : most) {
    double& column = columns_[c].rate;
    if (rate >= column * kAsGood) continue;
    column = std::max(rate, kLeastKept * column);
    learnt = true;
  }
  return learnt;
}

}  // namespace tessera::scheduler
