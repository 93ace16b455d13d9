#include "scheduler/search/best/few_devices_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "scheduler/search/best/grouping_program.h"
#include "scheduler/search/best/kept_placements.h"
#include "scheduler/search/best/split_link_bound.h"
#include "scheduler/search/best/split_over_links.h"
#include "scheduler/search/layout/assemble.h"
#include "scheduler/search/layout/layout_bound.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kFewDevices = 8;
constexpr int64_t kFewSets = 300;      // for the least price, which needs cheap sets only
constexpr int64_t kExactWork = 600;    // device sets * unlike layers that take a second or so
constexpr int64_t kProvenWork = 2000;  // the same where a proof is asked for
constexpr int kFirstTests = 20;        // of a column's layouts, before any grouping is looked at
constexpr int kStepTests = 2000;       // of a column's layouts at a time
constexpr int64_t kMaxTests = 400'000, kMaxProofTests = 20'000'000;
constexpr double kProved = 1 + 9e-6;           // what a bound may be above the value
constexpr double kLess = 1 - 5e-6;             // of a bound, what is worth bounding further
constexpr int64_t kMaxLayouts = 200'000;       // of a set whose links bind, and parts of them
constexpr int64_t kMaxCombinations = 100'000;  // of such sets' layouts
constexpr size_t kMaxGroupings = 3000;  // that links hold below what their replicas could serve

// What is known of the layouts of a set of devices in a role; sets that are alike share it.
struct SetLayouts {
  LayoutProblem problem;
  std::unique_ptr<LayoutBound> bound;              // null: `exact` is the best layout
  Layout exact;                                    // the best of all layouts, where that is known
  bool tested = false;                             // else the bound is that before any test
  bool settled = false;                            // nothing brings the bound down
  bool known = false;                              // as far as a search before needed it
  double listed_floor = kInfinity;                 // of by_machines
  std::optional<std::vector<Layout>> by_machines;  // none: too many

  const Layout& best() const { return bound ? bound->best() : exact; }
  double rate() const { return best().stages.empty() ? 0 : best().rate.requests_per_second; }
  double upper() const { return bound ? bound->bound() : rate(); }

  // Layouts of those that serve more than the floor, and maybe others.
  const std::optional<std::vector<Layout>>& ByMachines(double floor) {
    if (floor < listed_floor) by_machines = LayoutsByMachines(problem, kMaxLayouts, floor);
    listed_floor = std::min(listed_floor, floor);
    return by_machines;
  }
};

// A set of devices in a role.
struct SetInRole {
  Role role = Role::kBoth;
  int set = 0;
  SetLayouts* layouts = nullptr;
  std::vector<int> pools;       // of the graph, by pool of the layouts
  double cap = kInfinity;       // of the rate, by the sets that it is within
  double link_cap = kInfinity;  // by what goes into or out of its machines

  double layouts_upper() const { return std::min(cap, layouts->upper()); }
  double upper() const { return std::min(link_cap, layouts_upper()); }
  double rate() const { return std::min(link_cap, layouts->rate()); }
};

class FewDevicesSearch {
 public:
  FewDevicesSearch(const PlacementProblem& problem, KnownLayouts* known)
      : problem_(problem),
        known_(known),
        pools_(problem.graph->pools()),
        lengths_(MomentsOf(problem.samples)),
        link_bound_(problem),
        sets_(*problem.graph) {}

  FewDevicesResult Run() {
    MakeColumns();
    for (SetInRole& column : columns_) CapWithin(column);
    if (!cheapest() && !step()) BoundAll();
    TryKnown();
    FewDevicesResult result;
    result.settled = Prove();
    Remember();
    for (const SetInRole& column : columns_)
      result.fits = result.fits || column.layouts->rate() > 0;
    if (!best_) return result;
    if (!step()) Explain();
    best_->interrupted = problem_.watch.Stopped();
    best_->evaluations = tests_;
    if (!step()) best_->alternatives = Alternatives();
    if (problem_.goal != Goal::kPrice && std::isfinite(upper_)) best_->upper_bound = upper_;
    best_->proved = result.settled;
    result.placement = std::move(best_);
    return result;
  }

 private:
  bool cheapest() const { return problem_.goal == Goal::kPrice; }
  bool step() const { return known_ != nullptr; }  // of another search

  bool Stopped() const {
    const int64_t most = problem_.prove ? kMaxProofTests : kMaxTests;
    return tests_ >= most || problem_.watch.Stopped();
  }

  // --- Columns: small sets first ---

  void MakeColumns() {
    std::vector<Role> roles = {Role::kBoth};
    if (problem_.allow_split && lengths_.decode_steps > 0)
      roles = {Role::kBoth, Role::kPrefill, Role::kDecode};
    for (int set = 1; set < sets_.size(); ++set) {
      for (const Role role : roles) columns_.push_back(MakeColumn(set, role));
    }
    std::stable_sort(columns_.begin(), columns_.end(), [&](const SetInRole& a, const SetInRole& b) {
      return sets_.devices(a.set) < sets_.devices(b.set);
    });
  }

  SetInRole MakeColumn(int set, Role role) {
    SetInRole column;
    column.role = role;
    column.set = set;
    LayoutProblem layout;
    layout.model = problem_.model;
    layout.graph = problem_.graph;
    layout.lengths = lengths_;
    layout.options = problem_.options;
    layout.role = role;
    const std::vector<int> counts = sets_.Counts(set);
    for (size_t p = 0; p < counts.size(); ++p) {
      if (counts[p] == 0) continue;
      column.pools.push_back(static_cast<int>(p));
      layout.pools.push_back({pools_[p].spec, pools_[p].machine, counts[p]});
    }
    auto [at, fresh] = layouts_.try_emplace(KeyOf(layout));
    if (fresh) {
      at->second = std::make_unique<SetLayouts>();
      at->second->problem = layout;
      if (problem_.model->uniform()) {
        at->second->bound = std::make_unique<LayoutBound>(layout);
        StartFromKnown(at->first, at->second.get());
      } else {
        layout.exact = true;
        at->second->exact = BestLayout(layout);
      }
    }
    column.layouts = at->second.get();
    if (role != Role::kBoth) column.link_cap = link_bound_.RateOf(role, counts);
    return column;
  }

  // Time per output token is nothing to who only prefills.
  double TpotOf(Role role) const {
    return role == Role::kPrefill || lengths_.decode_steps <= 0 ? kInfinity
                                                                : problem_.options.max_tpot_seconds;
  }

  void StartFromKnown(const std::string& key, SetLayouts* layouts) const {
    if (known_ == nullptr) return;
    const auto known = known_->by_key.find(key);
    if (known == known_->by_key.end()) return;
    const KnownLayouts::Set& set = known->second;
    layouts->known = TpotOf(layouts->problem.role) <= set.max_tpot_seconds;
    layouts->bound->StartFrom(set.stages, layouts->known ? set.upper : kInfinity);
  }

  void Remember() const {
    if (known_ == nullptr) return;
    for (const auto& [key, layouts] : layouts_) {
      known_->by_key[key] = {TpotOf(layouts->problem.role), layouts->upper(),
                             layouts->best().stages};
    }
  }

  // For the least price: until a set serves what is required, and of no dearer ones.
  void BoundAll() {
    double enough_usd = kInfinity;
    for (SetInRole& column : columns_) {
      if (Stopped()) return;
      const double usd = sets_.usd_per_hour(column.set);
      if (usd > enough_usd || column.layouts->known) continue;  // what it is part of is dearer
      if (!column.layouts->tested) Bound(&column, 0, kFirstTests);
      if (cheapest() && column.role == Role::kBoth &&
          column.rate() >= problem_.required_requests_per_second) {
        enough_usd = usd;
      }
    }
  }

  // Spends tests on a column's bound, down to the target.
  void Bound(SetInRole* column, double target, int tests) {
    if (!column->layouts->bound) return;
    column->layouts->tested = true;
    StartFromWithin(column);
    const double before = column->layouts->rate();
    const double upper_before = column->layouts->upper();
    const int spent = column->layouts->bound->Refine(target, tests);
    tests_ += spent;
    if (tests >= kStepTests && column->layouts->upper() >= upper_before) Settle(column->layouts);
    better_layouts_ = better_layouts_ || column->layouts->rate() > before;
    CapWithin(*column);
  }

  // A set serves what the sets within it do.
  void StartFromWithin(SetInRole* column) const {
    const SetInRole* best = column;
    for (const SetInRole& other : columns_) {
      if (other.role == column->role && other.layouts->rate() > best->layouts->rate() &&
          sets_.Within(other.set, column->set)) {
        best = &other;
      }
    }
    if (best == column) return;
    std::vector<LayoutStage> stages = best->layouts->best().stages;
    for (LayoutStage& stage : stages) {
      const int pool = best->pools[static_cast<size_t>(stage.pool)];
      stage.pool = static_cast<int>(std::find(column->pools.begin(), column->pools.end(), pool) -
                                    column->pools.begin());
    }
    column->layouts->bound->StartFrom(stages, kInfinity);
  }

  void CapWithin(const SetInRole& column) {
    const double upper = column.layouts_upper();
    for (SetInRole& other : columns_) {
      if (other.role == column.role && sets_.Within(other.set, column.set))
        other.cap = std::min(other.cap, upper);
    }
  }

  // Tests do not help any more: where KV holds fewer sequences than stages, the number of
  // micro-batches follows from the layout, and bounds do not know that.
  static void Settle(SetLayouts* layouts) {
    layouts->settled = true;
    if (!layouts->ByMachines(layouts->rate())) return;
    layouts->exact =
        layouts->by_machines->empty() ? layouts->best() : layouts->by_machines->front();
    layouts->bound.reset();
  }

  bool IsExact(const SetInRole& column) const {
    return column.layouts->settled || column.upper() <= column.rate() * kProved ||
           column.upper() <= 0;
  }

  // --- Groupings ---

  std::vector<Column> Rated(bool upper) const {
    std::vector<Column> rated;
    for (const SetInRole& column : columns_) {
      rated.push_back(
          {column.role, upper ? column.upper() : column.rate(), sets_.Counts(column.set)});
    }
    return rated;
  }

  PlacedReplica ReplicaOf(const SetInRole& column) const {
    PlacedReplica replica;
    replica.role = column.role;
    for (LayoutStage stage : column.layouts->best().stages) {
      stage.pool = column.pools[static_cast<size_t>(stage.pool)];
      replica.stages.push_back(stage);
    }
    return replica;
  }

  absl::StatusOr<Placement> Place(const ColumnGrouping& grouping) const {
    std::vector<PlacedReplica> replicas;
    for (const int c : grouping.columns) {
      replicas.push_back(ReplicaOf(columns_[static_cast<size_t>(c)]));
      if (replicas.back().stages.empty()) return absl::NotFoundError("a set without a layout");
    }
    return Assemble(problem_, std::move(replicas));
  }

  bool Better(const Placement& a, const Placement& b) const {
    if (problem_.goal != Goal::kPrice) return a.requests_per_second > b.requests_per_second;
    const double need = problem_.required_requests_per_second * (1 - 1e-6);
    const bool a_serves = a.requests_per_second >= need, b_serves = b.requests_per_second >= need;
    return a_serves != b_serves ? a_serves : a.usd_per_hour < b.usd_per_hour;
  }

  // The better of it and the best becomes that; the other is kept as an alternative.
  void Offer(absl::StatusOr<Placement> placement) {
    if (!placement.ok() || placement->requests_per_second <= 0) return;
    if (!best_ || Better(*placement, *best_)) {
      if (best_) kept_.Keep(*std::exchange(best_, std::nullopt));
      best_ = *std::move(placement);
    } else {
      kept_.Keep(*std::move(placement));
    }
  }

  // The groupings of the best layouts known, with and without splitting.
  void TryKnown() {
    better_layouts_ = false;
    const std::vector<Column> known = Rated(false);
    PlacementProblem problem = problem_;
    if (const auto grouping = BestGrouping(problem, sets_, known)) Offer(Place(*grouping));
    problem.allow_split = false;
    if (const auto grouping = BestGrouping(problem, sets_, known)) Offer(Place(*grouping));
  }

  // Those that lost, and the best without each replica of the best grouping.
  std::vector<Placement> Alternatives() {
    const std::vector<Column> known = Rated(false);
    const auto best = BestGrouping(problem_, sets_, known);
    for (size_t i = 0; best && i < best->columns.size() && !problem_.watch.Stopped(); ++i) {
      std::vector<Column> others = known;
      others[static_cast<size_t>(best->columns[i])].rate = 0;
      const auto next = BestGrouping(problem_, sets_, others);
      if (absl::StatusOr<Placement> p = next ? Place(*next) : absl::NotFoundError(""); p.ok())
        kept_.Keep(*std::move(p));
    }
    return kept_.Near(*best_);
  }

  double Value() const { return best_ ? best_->requests_per_second : 0; }

  // Would the grouping be better than the placement?
  bool Beats(const ColumnGrouping& grouping) const {
    if (!best_) return true;
    if (problem_.goal == Goal::kPrice)
      return Misses(*best_) || grouping.usd_per_hour < best_->usd_per_hour * (1 - 1e-9);
    return grouping.served() > Value() * kProved;
  }
  bool Misses(const Placement& placement) const {
    return placement.requests_per_second < problem_.required_requests_per_second * (1 - 1e-6);
  }

  // True: no placement is better.
  bool Prove() {
    while (true) {
      if (better_layouts_ && !cheapest()) TryKnown();
      const std::vector<Column> upper = Rated(true);
      std::optional<ColumnGrouping> grouping = BestGrouping(problem_, sets_, upper);
      upper_ = grouping ? grouping->served() : 0;
      if (!grouping || !Beats(*grouping)) return true;
      // Groupings come by what they cost: the first that is known to serve enough is the cheapest.
      if (cheapest() && IsKnownToServe(*grouping)) {
        Offer(Place(*grouping));
        if (!Beats(*grouping)) return true;
      }
      if (Stopped()) {
        if (!best_) TryKnown();
        return false;
      }
      SetInRole* loosest = Loosest(*grouping);
      if (loosest == nullptr) {
        // Links keep the grouping below what its replicas could serve.
        const OverLinks over = BestOverLinks(upper);
        upper_ = std::max({Value(), over.carried, over.unseen, left_open_});
        if (over.carried <= Value() * kProved) return upper_ <= Value() * kProved;
        grouping = over.grouping;
        loosest = Loosest(*grouping);
        if (loosest == nullptr) {
          Offer(Place(*grouping));
          if (!OfferOverLinks(*grouping)) left_open_ = std::max(left_open_, over.carried);
          if (Value() > upper_ * kProved) return false;  // it is no bound: the caller learns of it
          judged_.insert(grouping->columns);
          continue;
        }
      }
      problem_.watch.Report(absl::StrFormat("layouts of %d device sets, gap %.2f %%",
                                            columns_.size(), 100 * (1 - Value() / upper_)));
      const double target = TargetOf(*grouping, *loosest);
      SetInRole* column = WhatCaps(loosest, target);
      Bound(column, target, column->layouts->tested ? kStepTests : kFirstTests);
    }
  }

  bool IsKnownToServe(const ColumnGrouping& grouping) const {
    ColumnGrouping known;
    for (const int c : grouping.columns) {
      const SetInRole& column = columns_[static_cast<size_t>(c)];
      if (column.role != Role::kDecode) known.prefilled += column.rate();
      if (column.role != Role::kPrefill) known.decoded += column.rate();
    }
    return known.served() >= problem_.required_requests_per_second;
  }

  // The column of the grouping whose bound is farthest from its layout.
  SetInRole* Loosest(const ColumnGrouping& grouping) {
    SetInRole* loosest = nullptr;
    double most = 0;
    for (const int c : grouping.columns) {
      SetInRole& column = columns_[static_cast<size_t>(c)];
      if (IsExact(column)) continue;
      const double slack = column.upper() - column.rate();
      if (loosest != nullptr && slack <= most) continue;
      loosest = &column;
      most = slack;
    }
    return loosest;
  }

  // Where the column's bound is that of a set around it, and that may come down to the target: this
  // set, and with it all that are within it.
  SetInRole* WhatCaps(SetInRole* column, double target) {
    if (column->cap >= column->layouts->upper()) return column;
    for (SetInRole& other : columns_) {
      if (&other != column && other.role == column->role && other.layouts->upper() <= column->cap &&
          other.layouts->rate() <= target && !IsExact(other) &&
          sets_.Within(column->set, other.set)) {
        return &other;
      }
    }
    return column;
  }

  // The rate at which the grouping would serve what the placement does, or for the least price what
  // is required; of that its part by cost, where nothing is known of the column yet.
  double TargetOf(const ColumnGrouping& grouping, const SetInRole& column) const {
    const double value = cheapest() ? problem_.required_requests_per_second * (1 - 1e-4) : Value();
    if (cheapest() && !column.layouts->tested && grouping.usd_per_hour > 0)
      return value * sets_.usd_per_hour(column.set) / grouping.usd_per_hour;
    double excess = grouping.prefilled - value;
    if (column.role == Role::kDecode) excess = grouping.decoded - value;
    if (column.role == Role::kBoth) excess = grouping.served() - value;
    const double target = std::min(column.upper() - excess, column.upper() * kLess);
    return std::isfinite(target) ? std::max(0.0, target) : 0;
  }

  // --- Splitting over links that bind ---

  struct OverLinks {
    ColumnGrouping grouping;
    double carried = 0;  // what it serves at most
    double unseen = 0;   // so do the groupings that were too many to look at
  };
  // The grouping, of those that may be better than the placement, whose links carry most.
  OverLinks BestOverLinks(const std::vector<Column>& upper) const {
    OverLinks best;
    if (problem_.goal == Goal::kPrice) {
      best.unseen = upper_;
      return best;
    }
    std::optional<std::vector<ColumnGrouping>> groupings;
    for (const double part : {0.0, 0.25, 0.5, 0.75, 0.9}) {
      const double floor = Value() * kProved + part * (upper_ - Value());
      best.unseen = part > 0 ? floor : 0;
      groupings = GroupingsAbove(problem_, sets_, upper, floor, kMaxGroupings);
      if (groupings) break;
      best.unseen = upper_;
    }
    if (!groupings) return best;
    for (const ColumnGrouping& grouping : *groupings) {
      if (grouping.served() <= best.carried) break;
      if (judged_.contains(grouping.columns)) continue;
      const double carried = Carried(grouping);
      if (carried > best.carried) {
        best.carried = carried;
        best.grouping = grouping;
      }
    }
    return best;
  }

  double Carried(const ColumnGrouping& grouping) const {
    std::vector<SplitLinkBound::Set> sets;
    for (const int c : grouping.columns) {
      const SetInRole& column = columns_[static_cast<size_t>(c)];
      sets.push_back({column.role, sets_.Counts(column.set), column.upper()});
    }
    return link_bound_.RateOf(sets);
  }

  // Tries all layouts of the grouping's sets. False: they are too many.
  bool OfferOverLinks(const ColumnGrouping& grouping) {
    std::vector<SplitSet> split;
    std::vector<PlacedReplica> whole;
    double whole_rate = 0;
    for (const int c : grouping.columns) {
      const SetInRole& column = columns_[static_cast<size_t>(c)];
      if (column.role == Role::kBoth) {
        whole.push_back(ReplicaOf(column));
        whole_rate += column.layouts->rate();
        continue;
      }
      // With all others as fast as they can be, what it takes to serve more than the placement.
      const double others =
          (column.role == Role::kPrefill ? grouping.prefilled : grouping.decoded) - column.upper();
      const double floor = std::max(0.0, (Value() - others) * kLess);
      const std::optional<std::vector<Layout>>& layouts = column.layouts->ByMachines(floor);
      if (!layouts) return false;
      split.push_back({column.role, column.pools, &*layouts});
    }
    std::optional<SplitOverLinks> best =
        BestSplitOverLinks(problem_, split, Value() - whole_rate, kMaxCombinations);
    if (!best) return false;
    if (best->replicas.empty()) return true;
    whole.insert(whole.end(), best->replicas.begin(), best->replicas.end());
    Offer(Assemble(problem_, std::move(whole)));
    return true;
  }

  // --- What the placement says of itself ---

  void Explain() {
    const bool splits = Splits(*best_);
    if (splits && cheapest()) BoundAll();  // dearer ones that do not split
    if (problem_.allow_split && !splits) {
      best_->notes.push_back(LosingSplitNote(true, 0, 0));
    } else if (splits) {
      PlacementProblem unsplit = problem_;
      unsplit.allow_split = false;
      const auto grouping = BestGrouping(unsplit, sets_, Rated(false));
      best_->notes.push_back(LosingSplitNote(false, grouping ? grouping->served() : 0,
                                             grouping ? grouping->usd_per_hour : 0));
    }
    SetShadowPrices();
  }

  // Duals of the relaxed program over the columns.
  void SetShadowPrices() {
    ColumnTerms terms;
    for (const DevicePool& pool : pools_) terms.available.push_back(pool.count);
    if (cheapest()) terms.required = problem_.required_requests_per_second;
    if (problem_.goal == Goal::kBudget) terms.budget_usd_per_hour = problem_.budget_usd_per_hour;
    ColumnProgram program(terms);
    for (const SetInRole& column : columns_) {
      Column known = {column.role, column.layouts->rate(), sets_.Counts(column.set)};
      if (known.rate <= 0) continue;
      // Relaxed: of a machine no more than the part that is used.
      for (size_t p = 0; p < pools_.size(); ++p)
        known.usd_per_hour += known.devices[p] * pools_[p].price_usd_per_hour;
      program.Add(known);
    }
    absl::StatusOr<ColumnProgram::Answer> answer = program.Solve();
    if (answer.ok()) best_->shadow_prices = std::move(answer->device_prices);
  }

  const PlacementProblem& problem_;
  KnownLayouts* const known_;  // null: there are none
  const std::vector<DevicePool>& pools_;
  const LengthMoments lengths_;
  const SplitLinkBound link_bound_;
  const DeviceSets sets_;
  std::map<std::string, std::unique_ptr<SetLayouts>> layouts_;  // by KeyOf
  std::vector<SetInRole> columns_;
  std::optional<Placement> best_;
  KeptPlacements kept_{problem_};  // that lost
  double upper_ = kInfinity;
  std::set<std::vector<int>> judged_;  // groupings of exact columns that links hold
  double left_open_ = 0;               // what these serve at most
  int64_t tests_ = 0;
  bool better_layouts_ = false;  // than those of the groupings tried
};

bool FewSets(const std::vector<DevicePool>& pools) {
  int64_t sets = 1;
  for (const DevicePool& pool : pools) {
    sets *= pool.count + 1;
    if (sets > kFewSets) return false;
  }
  return true;
}

}  // namespace

bool AreFewDevices(const PlacementProblem& problem) {
  if (problem.graph->devices() > kFewDevices &&
      !(problem.goal == Goal::kPrice && FewSets(problem.graph->pools())))
    return false;
  if (problem.model->uniform()) return true;
  const int64_t work =
      static_cast<int64_t>(DeviceSets(*problem.graph).size()) * problem.model->layers;
  return work <= (problem.prove ? kProvenWork : kExactWork);
}

FewDevicesResult SearchFewDevices(const PlacementProblem& problem, KnownLayouts* known) {
  return FewDevicesSearch(problem, known).Run();
}

}  // namespace tessera::scheduler
