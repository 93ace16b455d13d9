#include "scheduler/search/best/split_placement.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "scheduler/search/best/class_placement.h"
#include "scheduler/search/best/configuration_program.h"
#include "scheduler/search/layout/assemble.h"
#include "scheduler/search/layout/rate_program.h"
#include "scheduler/search/layout/replica_shaping.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kGap = 0.03;  // as of what class_search plans of the rest
constexpr int kRounds = 4;
constexpr int kBoxes = 150;
constexpr double kPackingGap = 1e-3;
constexpr int kNodes = 500;
constexpr double kMinPart = 0.5;  // of a column's rate that must be left on real links
constexpr int kMaxPlannings = 4;  // of what is left
constexpr double kBetter = 1 + 1e-6;
constexpr double kFarBelow = 0.7;  // of the best: changes would not make up for that
constexpr double kAsGood = 1 - 1e-9;
constexpr double kFaster = 1.2;
constexpr double kWorthSparing = 1e-3;  // of what is served
constexpr int kMaxPasses = 8;           // over all replicas
constexpr int kMaxServed = 400;         // from each start

class Splitter {
 public:
  Splitter(const PlacementProblem& problem, std::vector<Role> roles)
      : problem_(problem),
        roles_(std::move(roles)),
        shapes_(*problem.model, MomentsOf(problem.samples), problem.options),
        order_(PoolsByPlace(*problem.graph)) {
    for (const Role role : roles_) shaping_.try_emplace(role, problem, &shapes_, role);
  }

  std::optional<Placement> Run() {
    if (shapes_.lengths().decode_steps <= 0) return std::nullopt;
    Consider(Planned({kAll}));
    if (problem_.graph->groups() > 1) {
      std::vector<int> each(static_cast<size_t>(problem_.graph->groups()));
      std::iota(each.begin(), each.end(), 0);
      each.push_back(kAll);
      Consider(Planned(each));
    }
    Consider(CutInTwo());
    return Best();
  }

  Placement From(Placement start) {
    Improve(start.replicas);
    std::optional<Placement> found = Best();
    const bool better = found && found->requests_per_second > start.requests_per_second;
    return better ? *std::move(found) : start;
  }

 private:
  using Counts = std::vector<int>;  // devices by pool

  std::optional<Placement> Best() const {
    if (best_.empty()) return std::nullopt;
    absl::StatusOr<Placement> best = Assemble(problem_, best_);
    return best.ok() ? std::optional(*std::move(best)) : std::nullopt;
  }

  static constexpr int kAll = -1;

  // Group by group of machines in this order; kAll: all that is free.
  std::vector<PlacedReplica> Planned(const std::vector<int>& groups) {
    ClassPlacement at(problem_);
    for (const int group : groups) {
      for (int planning = 0; planning < kMaxPlannings && !problem_.watch.Stopped(); ++planning) {
        if (!PlanFree(group, &at)) break;
      }
    }
    return at.replicas();
  }

  bool PlanFree(int group, ClassPlacement* at) {
    const std::vector<DevicePool>& pools = problem_.graph->pools();
    std::vector<int> free = at->free();
    for (size_t p = 0; p < free.size(); ++p) {
      const MachineNode& machine =
          problem_.graph->machines()[static_cast<size_t>(pools[p].machine)];
      if (group != kAll && machine.group != group) free[p] = 0;
    }
    const DeviceClasses classes(*problem_.graph, free);
    if (classes.size() == 0) return false;
    ConfigurationProgram program(problem_, classes, &shapes_);
    program.Generate({RolesWanted::kSplit, kGap, kRounds, kBoxes, 0, false});
    const std::vector<int> counts = program.Whole(RolesWanted::kSplit, kPackingGap, kNodes);
    bool placed = false;
    for (size_t i = 0; i < counts.size(); ++i) {
      for (int copy = 0; copy < counts[i]; ++copy) {
        if (!at->Place(classes, program.columns()[i], kMinPart)) break;
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

  // Two replicas of the devices of one, the second of any role. What did both may do each in one.
  bool Cut(size_t i) {
    Counts front(order_.size(), 0), back = CountsOf(now_[i]);
    const Role role = now_[i].role;
    const size_t end = now_.size();
    for (const int p : order_) {
      for (const int part : Halves(back[static_cast<size_t>(p)])) {
        if (part == 0) continue;
        front[static_cast<size_t>(p)] += part;
        back[static_cast<size_t>(p)] -= part;
        for (const auto& [kept, fresh] : {std::pair(front, back), std::pair(back, front)}) {
          for (const Role second : RolesFrom(role)) {
            if (Take({{i, kept, role}, {end, fresh, second}})) return true;
          }
          if (role == Role::kBoth && Take({{i, kept, Role::kPrefill}, {end, fresh, Role::kDecode}}))
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
    const double served = Served(replicas, kNobody);
    if (served > 0 && served >= kFarBelow * best_served_) Improve(std::move(replicas));
  }

  void Improve(std::vector<PlacedReplica> start) {
    const double served = Served(start, kNobody);
    Put(std::move(start), served);
    left_ = kMaxServed;
    for (int pass = 0; pass < kMaxPasses && ChangeAll(); ++pass) {
    }
    if (served_ <= best_served_) return;
    best_served_ = served_;
    best_ = now_;
  }

  void Put(std::vector<PlacedReplica> replicas, double served) {
    now_ = std::move(replicas);
    served_ = served;
    ids_.clear();
    capacity_ = {};
    looked_at_.clear();
    for (const PlacedReplica& replica : now_) {
      capacity_.Add(replica, 1);
      std::vector<int> key = {static_cast<int>(replica.role)};
      for (const LayoutStage& stage : replica.stages)
        key.insert(key.end(), {stage.pool, stage.width, stage.layers});
      ids_.push_back(known_ids_.try_emplace(std::move(key), static_cast<int>(known_ids_.size()))
                         .first->second);
    }
    if_faster_ = Served(now_, Scarcer());
  }

  // Every replica, every two of them; true: some change helped.
  bool ChangeAll() {
    bool better = false;
    for (size_t i = 0; i < now_.size() && !Spent(); ++i) better = Relay(i) || better;
    for (size_t i = 0; i < now_.size() && !Spent(); ++i) {
      if (looked_at_.insert({ids_[i], -1}).second)
        better = GiveFree(i) || JoinFree(i) || Cut(i) || better;
      for (size_t j = 0; j < now_.size() && i < now_.size(); ++j) {
        if (i == j || !looked_at_.insert({ids_[i], ids_[j]}).second) continue;
        better = Give(i, j) || (i < j && (Swap(i, j) || Exchange(i, j) || Join(i, j))) || better;
      }
    }
    return better;
  }

  // All that there may be, this one first.
  std::vector<Role> RolesFrom(Role first) const {
    std::vector<Role> roles = {first};
    for (const Role role : roles_) {
      if (role != first) roles.push_back(role);
    }
    return roles;
  }

  bool Spent() const { return left_ <= 0 || problem_.watch.Stopped(); }

  // Columns were laid out for classes: on these devices there may be something better.
  bool Relay(size_t i) {
    const Counts own = CountsOf(now_[i]);
    for (const Role role : RolesFrom(now_[i].role)) {
      if (Take({{i, own, role}})) return true;
    }
    return false;
  }

  Counts Free() const {
    Counts free;
    for (const DevicePool& pool : problem_.graph->pools()) free.push_back(pool.count);
    for (const PlacedReplica& replica : now_) {
      for (const LayoutStage& stage : replica.stages)
        free[static_cast<size_t>(stage.pool)] -= stage.width;
    }
    return free;
  }

  bool GiveFree(size_t to) {
    const Counts free = Free();
    for (size_t p = 0; p < free.size(); ++p) {
      if (free[p] == 0) continue;
      Counts more = CountsOf(now_[to]);
      more[p] += free[p];
      if (Take({{to, more, now_[to].role}})) return true;
    }
    return false;
  }

  // Free devices that hold no replica may do so with some of this one's.
  bool JoinFree(size_t from) {
    const Counts free = Free(), own = CountsOf(now_[from]);
    if (std::none_of(free.begin(), free.end(), [](int count) { return count > 0; })) return false;
    for (size_t p = 0; p < own.size(); ++p) {
      for (const int part : std::set<int>{1, own[p] / 2, own[p]}) {
        if (part == 0 || part > own[p]) continue;
        Counts less = own, fresh = free;
        less[p] -= part;
        fresh[p] += part;
        for (const Role role : RolesFrom(now_[from].role)) {
          if (Take({{from, less, now_[from].role}, {now_.size(), fresh, role}})) return true;
        }
      }
    }
    return false;
  }

  // Some devices of one for another: all of a pool, half of them, one.
  bool Give(size_t from, size_t to) {
    const Counts own = CountsOf(now_[from]);
    for (size_t p = 0; p < own.size(); ++p) {
      for (const int part : std::set<int>{1, own[p] / 2, own[p]}) {
        if (part == 0 || part > own[p]) continue;
        Counts less = own, more = CountsOf(now_[to]);
        less[p] -= part;
        more[p] += part;
        if (Take({{from, less, now_[from].role}, {to, more, now_[to].role}})) return true;
      }
    }
    return false;
  }

  // Devices of a pool of one for as many of another pool of the other.
  bool Exchange(size_t i, size_t j) {
    const Counts of_i = CountsOf(now_[i]), of_j = CountsOf(now_[j]);
    for (size_t p = 0; p < of_i.size(); ++p) {
      for (size_t q = 0; q < of_j.size(); ++q) {
        const int part = std::min(of_i[p], of_j[q]);
        if (part == 0 || p == q) continue;
        Counts first = of_i, second = of_j;
        first[p] -= part;
        first[q] += part;
        second[q] -= part;
        second[p] += part;
        if (Take({{i, first, now_[i].role}, {j, second, now_[j].role}})) return true;
      }
    }
    return false;
  }

  // Roles: which of them links reach better.
  bool Swap(size_t i, size_t j) {
    const Role first = now_[i].role, second = now_[j].role;
    return first != second && Take({{i, CountsOf(now_[i]), second}, {j, CountsOf(now_[j]), first}});
  }

  // One replica of two, in the role of either.
  bool Join(size_t i, size_t j) {
    Counts all = CountsOf(now_[i]);
    const Counts of_j = CountsOf(now_[j]);
    for (size_t p = 0; p < all.size(); ++p) all[p] += of_j[p];
    const Counts none(all.size(), 0);
    const Role first = now_[i].role, second = now_[j].role;
    return Take({{i, all, first}, {j, none, second}}) ||
           (first != second && Take({{i, all, second}, {j, none, first}}));
  }

  struct Change {
    size_t replica = 0;  // one past the last: a new one
    Counts devices;      // none: it goes
    Role role = Role::kPrefill;
  };
  // Requests per second, links left out.
  struct Capacity {
    double prefill = 0, decode = 0, both = 0;
    void Add(const PlacedReplica& replica, double sign) {
      double& sum = replica.role == Role::kPrefill  ? prefill
                    : replica.role == Role::kDecode ? decode
                                                    : both;
      sum += sign * replica.rate.requests_per_second;
    }
    double served() const { return both + std::min(prefill, decode); }
  };

  static constexpr Role kNobody = Role::kBoth;
  Role Scarcer() const {
    return capacity_.prefill < capacity_.decode ? Role::kPrefill : Role::kDecode;
  }

  // By devices and links together. `faster`: those of this role are: between placements that serve
  // as much, the one that has more of what the next change needs.
  double Served(const std::vector<PlacedReplica>& replicas, Role faster) {
    std::vector<const PlacedReplica*> given;
    double both = 0;
    for (const PlacedReplica& replica : replicas) {
      given.push_back(&replica);
      if (replica.role == Role::kBoth) both += replica.rate.requests_per_second;
    }
    RateProgram transport = MakeRateProgram(problem_, shapes_.lengths(), given);
    for (size_t i = 0; i < replicas.size(); ++i) {
      if (faster != kNobody && replicas[i].role == faster) transport.capacity[i] *= kFaster;
    }
    return both + ServedBy(transport);
  }

  // Where that serves more, or as much and leaves more to spare.
  bool Take(const std::vector<Change>& changes) {
    if (Spent()) return false;
    Capacity capacity = capacity_;
    std::vector<PlacedReplica> fresh;
    for (const Change& change : changes) {
      if (change.replica < now_.size()) capacity.Add(now_[change.replica], -1);
      fresh.push_back(LaidOut(change.devices, change.role));
      const bool goes = change.devices == Counts(change.devices.size(), 0);
      if (fresh.back().stages.empty() && !goes) return false;
      capacity.Add(fresh.back(), 1);
    }
    if (capacity.served() < served_ * kAsGood) return false;
    --left_;
    std::vector<PlacedReplica> replicas = now_;
    for (size_t i = 0; i < changes.size(); ++i) {
      if (changes[i].replica == replicas.size()) replicas.emplace_back();
      replicas[changes[i].replica] = std::move(fresh[i]);
    }
    std::erase_if(replicas, [](const PlacedReplica& replica) { return replica.stages.empty(); });
    const double served = Served(replicas, kNobody);
    if (served < served_ * kAsGood) return false;
    if (served <= served_ * kBetter &&
        Served(replicas, Scarcer()) <= if_faster_ + kWorthSparing * served_)
      return false;
    Put(std::move(replicas), served);
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
    PlacedReplica replica = shaping_.at(role).Shape(devices);
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
  const std::vector<Role> roles_;
  StageShapes shapes_;
  std::map<Role, ReplicaShaping> shaping_;
  const std::vector<int> order_;  // pools, those near each other together
  std::vector<PlacedReplica> now_;
  double served_ = 0;                          // by it, requests per second
  Capacity capacity_;                          // of it
  std::vector<int> ids_;                       // of its replicas, the same for the same stages
  std::set<std::pair<int, int>> looked_at_;    // ids; since it changed last
  std::map<std::vector<int>, int> known_ids_;  // by role and stages
  double if_faster_ = 0;                       // were the scarcer role faster
  int left_ = 0;                               // placements that may be judged
  std::vector<PlacedReplica> best_;
  double best_served_ = 0;
};

}  // namespace

std::optional<Placement> SplitPlacement(const PlacementProblem& problem) {
  return Splitter(problem, {Role::kPrefill, Role::kDecode}).Run();
}

Placement ImproveSplit(const PlacementProblem& problem, Placement start) {
  return Splitter(problem, {Role::kPrefill, Role::kDecode, Role::kBoth}).From(std::move(start));
}

absl::StatusOr<Placement> SplitSearch(const PlacementProblem& problem) {
  if (problem.goal != Goal::kThroughput) {
    return absl::InvalidArgumentError(
        "--split: plans that split everywhere are looked for by throughput alone: leave --split "
        "out, or the other goal");
  }
  if (problem.graph->devices() > kSplitUpTo) {
    return absl::InvalidArgumentError(
        StrCat("--split: plans that split everywhere are looked for on up to ", kSplitUpTo,
               " devices, and there are ", problem.graph->devices(),
               ": leave --split out, or describe a part of the cluster, such as a site"));
  }
  std::optional<Placement> placement = SplitPlacement(problem);
  if (placement.has_value()) return *std::move(placement);
  return absl::ResourceExhaustedError(
      "no two replicas were found that each hold the model, one to prefill and one to decode: "
      "leave --split out");
}

}  // namespace tessera::scheduler
