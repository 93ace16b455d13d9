#include "scheduler/search/split_placement.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "scheduler/search/class_placement.h"
#include "scheduler/search/configuration_program.h"
#include "scheduler/search/goodput.h"
#include "scheduler/search/replica_shaping.h"

namespace tessera::scheduler {
namespace {

constexpr double kGap = 0.03;  // as of what class_search plans of the rest
constexpr int kRounds = 4;
constexpr int kBoxes = 150;
constexpr double kPackingGap = 1e-3;
constexpr int kNodes = 500;
constexpr double kLeastPart = 0.5;  // of a column's rate that must be left on real links
constexpr int kMostPlannings = 4;   // of what is left
constexpr double kBetter = 1 + 1e-6;
constexpr double kFarBelow = 0.7;  // of the best: changes would not make up for that
constexpr int kMostPasses = 8;     // over all replicas
constexpr int kMostLaidOut = 800;  // from each start

class Splitter {
 public:
  explicit Splitter(const PlacementProblem& problem)
      : problem_(problem),
        shapes_(*problem.model, MomentsOf(problem.samples), problem.options),
        judge_(problem),
        prefilling_(problem, &shapes_, Role::kPrefill),
        decoding_(problem, &shapes_, Role::kDecode),
        order_(PoolsByPlace(*problem.graph)) {
    for (const MachineNode& machine : problem.graph->machines()) {
      if (std::find(sites_.begin(), sites_.end(), machine.site) == sites_.end())
        sites_.push_back(machine.site);
    }
  }

  std::optional<Placement> Run() {
    if (shapes_.lengths().decode_steps <= 0) return std::nullopt;
    Consider(Planned({nullptr}));
    if (sites_.size() > 1) {
      std::vector<const std::string*> each;
      for (const std::string& site : sites_) each.push_back(&site);
      each.push_back(nullptr);
      Consider(Planned(each));
    }
    Consider(CutInTwo());
    return std::move(best_);
  }

 private:
  using Counts = std::vector<int>;  // devices by pool

  // Site by site in this order; null: all that is free.
  std::vector<PlacedReplica> Planned(const std::vector<const std::string*>& sites) {
    ClassPlacement at(problem_);
    for (const std::string* site : sites) {
      for (int planning = 0; planning < kMostPlannings && !problem_.watch.Stopped(); ++planning) {
        if (!PlanFree(site, &at)) break;
      }
    }
    return at.replicas();
  }

  bool PlanFree(const std::string* site, ClassPlacement* at) {
    const std::vector<DevicePool>& pools = problem_.graph->pools();
    std::vector<int> free = at->free();
    for (size_t p = 0; p < free.size(); ++p) {
      const MachineNode& machine =
          problem_.graph->machines()[static_cast<size_t>(pools[p].machine)];
      if (site != nullptr && machine.site != *site) free[p] = 0;
    }
    const DeviceClasses classes(*problem_.graph, free);
    if (classes.size() == 0) return false;
    ConfigurationProgram program(problem_, classes, &shapes_);
    program.Generate({RolesWanted::kSplit, kGap, kRounds, kBoxes, 0, false});
    const std::vector<int> counts = program.Whole(RolesWanted::kSplit, kPackingGap, kNodes);
    bool placed = false;
    for (size_t i = 0; i < counts.size(); ++i) {
      for (int copy = 0; copy < counts[i]; ++copy) {
        if (!at->Place(classes, program.columns()[i], kLeastPart)) break;
        placed = true;
      }
    }
    return placed;
  }

  // The best two replicas of all devices in the order of their places, whichever prefills.
  std::vector<PlacedReplica> CutInTwo() {
    std::vector<PlacedReplica> best;
    double most = 0;
    Counts front(order_.size(), 0), back;
    for (const DevicePool& pool : problem_.graph->pools()) back.push_back(pool.count);
    for (const int p : order_) {
      for (const int part : Halves(back[static_cast<size_t>(p)])) {
        front[static_cast<size_t>(p)] += part;
        back[static_cast<size_t>(p)] -= part;
        for (const bool first_prefills : {true, false}) {
          std::vector<PlacedReplica> two = {LaidOut(first_prefills ? front : back, Role::kPrefill),
                                            LaidOut(first_prefills ? back : front, Role::kDecode)};
          const double rate =
              std::min(two[0].rate.requests_per_second, two[1].rate.requests_per_second);
          if (rate <= most) continue;
          most = rate;
          best = std::move(two);
        }
      }
    }
    return best;
  }

  // Two replicas of the devices of one, the second of either role.
  bool Cut(size_t i, int* left) {
    Counts front(order_.size(), 0), back = CountsOf(now_.replicas[i]);
    const Role role = now_.replicas[i].role;
    for (const int p : order_) {
      for (const int part : Halves(back[static_cast<size_t>(p)])) {
        if (part == 0) continue;
        front[static_cast<size_t>(p)] += part;
        back[static_cast<size_t>(p)] -= part;
        if (Spent(left)) return false;
        const Role other = role == Role::kPrefill ? Role::kDecode : Role::kPrefill;
        const size_t end = now_.replicas.size();
        for (const auto& [kept, fresh] : {std::pair(front, back), std::pair(back, front)}) {
          if (Take({{i, kept, role}, {end, fresh, role}}) ||
              Take({{i, kept, role}, {end, fresh, other}}))
            return true;
        }
      }
    }
    return false;
  }

  static std::vector<int> Halves(int devices) {
    if (devices < 2) return {devices};
    return {devices / 2, devices - devices / 2};
  }

  void Consider(std::vector<PlacedReplica> replicas) {
    absl::StatusOr<Placement> placement = Assemble(problem_, std::move(replicas), &judge_);
    if (!placement.ok()) return;
    now_ = *std::move(placement);
    if (best_ && now_.requests_per_second < kFarBelow * best_->requests_per_second) return;
    for (int pass = 0, left = kMostLaidOut; pass < kMostPasses && ChangeAll(&left); ++pass) {
    }
    if (now_.requests_per_second <= 0) return;
    if (!best_ || now_.requests_per_second > best_->requests_per_second) best_ = now_;
  }

  // Every replica, every two of them; true: some change helped. `left`: layouts that may be tried.
  bool ChangeAll(int* left) {
    bool better = false;
    for (size_t i = 0; i < now_.replicas.size(); ++i) {
      const Role role = now_.replicas[i].role;
      const Role other = role == Role::kPrefill ? Role::kDecode : Role::kPrefill;
      const Counts own = CountsOf(now_.replicas[i]);
      if (Spent(left)) return better;
      // Columns were laid out for classes: on these devices there may be something better.
      better = Take({{i, own, role}}) || Take({{i, own, other}}) || better;
      better = GiveFree(i, left) || Cut(i, left) || better;
      for (size_t j = 0; j < now_.replicas.size(); ++j) better = Give(i, j, left) || better;
      for (size_t j = i + 1; j < now_.replicas.size(); ++j) better = Exchange(i, j, left) || better;
    }
    return better;
  }

  bool Spent(int* left) const { return --*left < 0 || problem_.watch.Stopped(); }

  bool GiveFree(size_t to, int* left) {
    Counts free;
    for (const DevicePool& pool : problem_.graph->pools()) free.push_back(pool.count);
    for (const PlacedReplica& replica : now_.replicas) {
      for (const LayoutStage& stage : replica.stages)
        free[static_cast<size_t>(stage.pool)] -= stage.width;
    }
    for (size_t p = 0; p < free.size(); ++p) {
      if (free[p] == 0) continue;
      if (Spent(left)) return false;
      Counts more = CountsOf(now_.replicas[to]);
      more[p] += free[p];
      if (Take({{to, more, now_.replicas[to].role}})) return true;
    }
    return false;
  }

  // Some devices of one for another: all of a pool, half of them, one.
  bool Give(size_t from, size_t to, int* left) {
    if (from == to) return false;
    const Counts own = CountsOf(now_.replicas[from]);
    for (size_t p = 0; p < own.size(); ++p) {
      for (const int part : std::set<int>{1, own[p] / 2, own[p]}) {
        if (part == 0 || part > own[p]) continue;
        if (Spent(left)) return false;
        Counts less = own, more = CountsOf(now_.replicas[to]);
        less[p] -= part;
        more[p] += part;
        if (Take({{from, less, now_.replicas[from].role}, {to, more, now_.replicas[to].role}}))
          return true;
      }
    }
    return false;
  }

  // Devices of a pool of one for as many of another pool of the other.
  bool Exchange(size_t i, size_t j, int* left) {
    const Counts of_i = CountsOf(now_.replicas[i]), of_j = CountsOf(now_.replicas[j]);
    for (size_t p = 0; p < of_i.size(); ++p) {
      for (size_t q = 0; q < of_j.size(); ++q) {
        const int part = std::min(of_i[p], of_j[q]);
        if (part == 0 || p == q) continue;
        if (Spent(left)) return false;
        Counts first = of_i, second = of_j;
        first[p] -= part;
        first[q] += part;
        second[q] -= part;
        second[p] += part;
        if (Take({{i, first, now_.replicas[i].role}, {j, second, now_.replicas[j].role}}))
          return true;
      }
    }
    return false;
  }

  struct Change {
    size_t replica = 0;  // one past the last: a new one
    Counts devices;
    Role role = Role::kPrefill;
  };

  // Where that serves more.
  bool Take(const std::vector<Change>& changes) {
    std::vector<PlacedReplica> replicas = now_.replicas;
    for (const Change& change : changes) {
      if (change.replica == replicas.size()) replicas.emplace_back();
      PlacedReplica& replica = replicas[change.replica];
      replica = LaidOut(change.devices, change.role);
      if (replica.stages.empty()) return false;
    }
    absl::StatusOr<Placement> changed = Assemble(problem_, std::move(replicas), &judge_);
    if (!changed.ok() || changed->requests_per_second <= now_.requests_per_second * kBetter)
      return false;
    now_ = *std::move(changed);
    return true;
  }

  // No stages: these devices do not hold the model.
  PlacedReplica LaidOut(const Counts& counts, Role role) {
    ReplicaShaping::Devices devices;
    for (const int p : order_) {
      const int count = counts[static_cast<size_t>(p)];
      if (count > 0) devices.emplace_back(p, count);
    }
    if (devices.empty()) return {};
    PlacedReplica replica = (role == Role::kPrefill ? prefilling_ : decoding_).Shape(devices);
    replica.role = role;
    return replica;
  }

  Counts CountsOf(const PlacedReplica& replica) const {
    Counts counts(problem_.graph->pools().size(), 0);
    for (const LayoutStage& stage : replica.stages)
      counts[static_cast<size_t>(stage.pool)] += stage.width;
    return counts;
  }

  const PlacementProblem& problem_;
  StageShapes shapes_;
  ReplicaJudge judge_;
  ReplicaShaping prefilling_, decoding_;
  const std::vector<int> order_;  // pools, those near each other together
  std::vector<std::string> sites_;
  Placement now_;
  std::optional<Placement> best_;
};

}  // namespace

std::optional<Placement> SplitPlacement(const PlacementProblem& problem) {
  return Splitter(problem).Run();
}

}  // namespace tessera::scheduler
