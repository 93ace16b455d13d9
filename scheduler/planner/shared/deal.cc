#include "scheduler/planner/shared/deal.h"

#include <algorithm>
#include <map>
#include <set>

#include "scheduler/search/layout/assemble.h"
#include "scheduler/search/math/linear_program.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kMore = 1 + 1e-9;
constexpr double kSumWeight = 1e-4;  // of all models' parts beside theta
constexpr double kProgramGap = 1e-4;
constexpr int kProgramNodes = 2000;

int64_t Sets(const PlacementProblem& problem) {
  int64_t sets = 1;
  for (const DevicePool& pool : problem.graph->pools())
    sets = std::min<int64_t>(sets * (pool.count + 1), int64_t{1} << 20);
  return sets;
}

DeviceCounts Plus(DeviceCounts a, const DeviceCounts& b) {
  for (size_t p = 0; p < a.size(); ++p) a[p] += b[p];
  return a;
}

DeviceCounts Minus(DeviceCounts a, const DeviceCounts& b) {
  for (size_t p = 0; p < a.size(); ++p) a[p] -= b[p];
  return a;
}

// The next set of devices within `counts`, as a number with these digits; false after the last.
bool Next(const DeviceCounts& counts, DeviceCounts* part) {
  for (size_t i = 0; i < counts.size(); ++i) {
    if (++(*part)[i] <= counts[i]) return true;
    (*part)[i] = 0;
  }
  return false;
}

}  // namespace

Dealer::Dealer(const std::vector<const PlacementProblem*>& problems, const Search& search,
               const SharingOptions& options)
    : problems_(problems), options_(options) {
  const PlacementProblem& first = *problems.front();
  for (const PlacementProblem* problem : problems)
    searches_.push_back(std::make_unique<PartSearch>(*problem, search, options.most_searches,
                                                     options.most_searched_devices));
  for (const DevicePool& pool : first.graph->pools()) {
    if (machines_.empty() || machines_.back() != pool.machine) machines_.push_back(pool.machine);
  }
}

absl::StatusOr<Placement> Dealer::Alone(size_t model) {
  return searches_[model]->On(AllDevices(*problems_[model]));
}

void Dealer::AllowMore(int searches, int64_t devices) {
  for (const auto& search : searches_) search->AllowMore(searches, devices);
}

double Dealer::RateOn(size_t model, const DeviceCounts& part) {
  if (std::all_of(part.begin(), part.end(), [](int n) { return n == 0; })) return 0;
  const absl::StatusOr<Placement> found = searches_[model]->On(part);
  return found.ok() ? found->requests_per_second : 0;
}

Deal Dealer::Judge(std::vector<Placement> placements) const {
  Deal deal;
  deal.theta = placements.empty() ? 0 : kUnbounded;
  for (size_t i = 0; i < placements.size(); ++i) {
    const double part = placements[i].requests_per_second / weights_[i];
    deal.theta = std::min(deal.theta, part);
    deal.sum += part;
  }
  deal.placements = std::move(placements);
  return deal;
}

bool Dealer::Better(const Deal& a, const Deal& b) const {
  if (a.theta > b.theta * kMore) return true;
  return a.theta * kMore >= b.theta && a.sum > b.sum * kMore;
}

Deal Dealer::OnParts(const Parts& parts) {
  std::vector<Placement> placements;
  for (size_t i = 0; i < models(); ++i) {
    if (RateOn(i, parts[i]) <= 0) return {};
    placements.push_back(*searches_[i]->On(parts[i]));
  }
  return Judge(std::move(placements));
}

bool Dealer::TryParts(const Parts& parts) {
  Deal deal = OnParts(parts);
  if (deal.placements.empty() || !Better(deal, best_)) return false;
  best_ = std::move(deal);
  return true;
}

void Dealer::EveryDeal(Parts* parts, const DeviceCounts& left, size_t model) {
  DeviceCounts part(left.size(), 0);
  do {
    // What cannot be better than the best is not followed.
    const double rate = RateOn(model, part) / weights_[model];
    if (rate <= 0 || rate * kMore < best_.theta) continue;
    (*parts)[model] = part;
    if (model + 1 == models()) {
      TryParts(*parts);
    } else {
      EveryDeal(parts, Minus(left, part), model + 1);
    }
  } while (Next(left, &part));
}

// --- Units of the program ---

void Dealer::AddUnit(size_t model, std::vector<PlacedReplica> replicas) {
  const absl::StatusOr<Placement> judged = Assemble(*problems_[model], replicas);
  if (!judged.ok() || judged->requests_per_second <= 0) return;
  Unit unit = {model, std::move(replicas), {}, judged->requests_per_second};
  unit.used = DevicesOf(*problems_[model], unit.replicas);
  std::string key = StrCat(model, ":", unit.rate);
  for (const int n : unit.used) key += StrCat(",", n);
  if (units_.size() < static_cast<size_t>(options_.most_units) * models() &&
      known_units_.insert(key).second)
    units_.push_back(std::move(unit));
}

// Replicas that do all by themselves are units each, those that split work are one.
void Dealer::AddPart(size_t model, const DeviceCounts& part) {
  const absl::StatusOr<Placement> found = searches_[model]->On(part);
  if (!found.ok()) return;
  std::vector<PlacedReplica> split;
  for (const PlacedReplica& replica : found->replicas) {
    if (replica.role == Role::kBoth) {
      AddUnit(model, {replica});
    } else {
      split.push_back(replica);
    }
  }
  if (!split.empty()) AddUnit(model, std::move(split));
}

void Dealer::CollectUnits(size_t model) {
  const PlacementProblem& problem = *problems_[model];
  const DeviceCounts all = AllDevices(problem);
  AddPart(model, all);
  std::vector<int> small;  // machines that hold no replica
  for (const int machine : machines_) {
    const DeviceCounts one = OfMachine(problem, all, machine);
    AddPart(model, one);
    if (RateOn(model, one) <= 0) small.push_back(machine);
    // Half of a machine leaves the other half to another model.
    DeviceCounts half = one;
    for (int& n : half) n /= 2;
    if (std::any_of(half.begin(), half.end(), [](int n) { return n > 0; })) AddPart(model, half);
  }
  std::map<int, DeviceCounts> groups;
  for (size_t p = 0; p < all.size(); ++p) {
    const DevicePool& pool = problem.graph->pools()[p];
    const int group = problem.graph->machines()[static_cast<size_t>(pool.machine)].group;
    groups.try_emplace(group, all.size(), 0).first->second[p] = all[p];
  }
  if (groups.size() > 1) {
    for (const auto& [group, part] : groups) AddPart(model, part);
  }
  for (size_t i = 0; i < small.size(); ++i) {
    for (size_t j = i + 1; j < small.size() && !searches_[model]->spent(); ++j)
      AddPart(model, Plus(OfMachine(problem, all, small[i]), OfMachine(problem, all, small[j])));
  }
}

void Dealer::Combine() {
  LinearProgram program;
  std::vector<int> pool_rows, model_rows, variables;
  for (const DevicePool& pool : problems_.front()->graph->pools())
    pool_rows.push_back(program.AddRow(-kUnbounded, pool.count));
  const int theta = program.AddVariable(1, 0, kUnbounded, false);
  for (size_t i = 0; i < models(); ++i) {
    model_rows.push_back(program.AddRow(0, kUnbounded));
    program.AddTerm(model_rows.back(), theta, -weights_[i]);
  }
  for (const Unit& unit : units_) {
    const int y =
        program.AddVariable(kSumWeight * unit.rate / weights_[unit.model], 0, kUnbounded, true);
    variables.push_back(y);
    program.AddTerm(model_rows[unit.model], y, unit.rate);
    for (size_t p = 0; p < unit.used.size(); ++p) {
      if (unit.used[p] > 0) program.AddTerm(pool_rows[p], y, unit.used[p]);
    }
  }
  const absl::StatusOr<LinearProgram::Solution> solution =
      program.Solve(false, kProgramGap, kProgramNodes);
  if (!solution.ok()) return;
  std::vector<std::vector<PlacedReplica>> chosen(models());
  for (size_t u = 0; u < units_.size(); ++u) {
    const auto copies = static_cast<int>(solution->values[static_cast<size_t>(variables[u])] + 0.5);
    for (int copy = 0; copy < copies; ++copy) {
      std::vector<PlacedReplica>& to = chosen[units_[u].model];
      to.insert(to.end(), units_[u].replicas.begin(), units_[u].replicas.end());
    }
  }
  std::vector<Placement> placements;
  for (size_t i = 0; i < models(); ++i) {
    absl::StatusOr<Placement> placement = Assemble(*problems_[i], chosen[i]);
    if (!placement.ok() || placement->requests_per_second <= 0) return;
    placements.push_back(*std::move(placement));
  }
  Deal deal = Judge(std::move(placements));
  if (Better(deal, best_)) best_ = std::move(deal);
}

Dealer::Parts Dealer::PartsOf(const Deal& deal, DeviceCounts* idle) const {
  Parts parts;
  *idle = AllDevices(*problems_.front());
  for (size_t i = 0; i < models(); ++i) {
    parts.push_back(DevicesOf(*problems_[i], deal.placements[i].replicas));
    *idle = Minus(*idle, parts.back());
  }
  return parts;
}

// The model that has least takes what is idle, then a replica's devices from each other model.
void Dealer::Improve() {
  for (int move = 0; move < options_.most_moves && !best_.placements.empty(); ++move) {
    if (problems_.front()->watch.Stopped()) return;
    DeviceCounts idle;
    const Parts parts = PartsOf(best_, &idle);
    size_t least = 0;
    for (size_t i = 1; i < models(); ++i) {
      if (best_.placements[i].requests_per_second / weights_[i] <
          best_.placements[least].requests_per_second / weights_[least])
        least = i;
    }
    Parts changed = parts;
    changed[least] = Plus(changed[least], idle);
    bool gained = TryParts(changed);
    for (size_t j = 0; j < models() && !gained; ++j) {
      if (j == least || searches_[j]->spent() || searches_[least]->spent()) continue;
      const std::vector<PlacedReplica> replicas = best_.placements[j].replicas;
      for (size_t r = 0; r < replicas.size() && !gained; ++r) {
        const DeviceCounts taken = DevicesOf(*problems_[j], {replicas[r]});
        Parts moved = changed;
        moved[j] = Minus(moved[j], taken);
        moved[least] = Plus(moved[least], taken);
        gained = TryParts(moved);
      }
    }
    if (!gained) return;
  }
}

absl::StatusOr<Deal> Dealer::Run(const std::vector<double>& weights) {
  weights_ = weights;
  best_ = {};
  const DeviceCounts all = AllDevices(*problems_.front());
  if (Sets(*problems_.front()) <= options_.all_sets_up_to) {
    Parts parts(models());
    EveryDeal(&parts, all, 0);
    best_.exact = true;
  } else {
    for (size_t i = 0; i < models(); ++i) CollectUnits(i);
    Combine();
    Improve();
  }
  if (best_.placements.empty()) {
    return absl::ResourceExhaustedError(
        "the models do not fit beside each other on this cluster, though each does alone; add "
        "devices or serve fewer models");
  }
  return best_;
}

}  // namespace tessera::scheduler
