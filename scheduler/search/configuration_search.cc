#include "scheduler/search/configuration_search.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_format.h"
#include "scheduler/search/class_search.h"
#include "scheduler/search/layout_bound.h"
#include "scheduler/search/linear_program.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr int64_t kAllSetsUpTo = 300;  // device sets that are all tried
constexpr int kExactDevices = 8;       // up to which the optimum is proved
constexpr int64_t kExactWork = 600;    // device sets times layers that take a second or so
constexpr int64_t kProvenWork = 2000;  // the same where a proof is asked for
constexpr int kQuickTests = 150;       // of a range of layouts, where no proof is asked for
constexpr int kProofTests = 4000;
constexpr double kWorthBounding = 1 + 2e-5;
constexpr double kGib = 1073741824.0;

using Counts = std::vector<int>;  // devices per pool of the graph

struct Column {
  Role role = Role::kBoth;
  std::vector<LayoutStage> stages;  // pools of the graph
  Counts used;
  double rate = 0;
  double usd_per_hour = 0;
};

class ConfigurationSearch {
 public:
  explicit ConfigurationSearch(const PlacementProblem& problem)
      : problem_(problem),
        pools_(problem.graph->pools()),
        lengths_(MomentsOf(problem.samples)) {}

  absl::StatusOr<Placement> Run() {
    if (!IsSmall()) {
      ClassSearchResult found = SearchByClass(problem_);
      if (found.placement) found.placement->upper_bound = found.upper_bound;
      if (CanBound()) return Bounded(std::move(found));
      if (!found.placement) return NothingFits();
      return *std::move(found.placement);
    }
    AllSets(Counts(pools_.size(), 0), 0);
    if (columns_.empty()) return NothingFits();
    double bound = 0;
    absl::StatusOr<Placement> whole = Choose(false, &bound);
    absl::StatusOr<Placement> split = absl::CancelledError("not asked for");
    if (problem_.allow_split)
      split = Choose(true, &bound);  // has every column of the other: the larger bound
    absl::StatusOr<Placement> best = TheBetter(std::move(whole), std::move(split));
    // Links are left out of the program, so the bound holds for split placements as well.
    if (best.ok() && problem_.goal != Goal::kPrice) best->upper_bound = bound;
    return best;
  }

 private:
  absl::StatusOr<Placement> TheBetter(absl::StatusOr<Placement> whole,
                                      absl::StatusOr<Placement> split) const {
    if (!split.ok()) return whole;
    if (!whole.ok()) return split;
    const bool splits = std::any_of(split->replicas.begin(), split->replicas.end(),
                                    [](const PlacedReplica& r) { return r.role != Role::kBoth; });
    if (!splits) {
      split->notes.push_back("splitting prefill and decode between replicas brings nothing here");
      return split;
    }
    const bool better = Better(*split, *whole);
    Placement& winner = better ? *split : *whole;
    const Placement& loser = better ? *whole : *split;
    winner.notes.push_back(absl::StrFormat(
        "%s prefill and decode would serve %.3f requests/s for %.2f USD/h",
        better ? "not splitting" : "splitting", loser.requests_per_second, loser.usd_per_hour));
    return winner;
  }

  int64_t Sets() const {
    int64_t sets = 1;
    for (const DevicePool& pool : pools_)
      sets = std::min<int64_t>(sets * (pool.count + 1), kAllSetsUpTo + 1);
    return sets;
  }

  // Every device set is tried, with layouts that are proved best: then the program's optimum is the
  // optimum.
  bool IsSmall() const {
    if (problem_.graph->devices() > kExactDevices || Sets() > kAllSetsUpTo) return false;
    const int64_t work = Sets() * problem_.model->layers;
    return work <= (problem_.prove ? kProvenWork : kExactWork);
  }

  // Every device set is tried, with bounds on its layouts.
  bool CanBound() const {
    return problem_.model->uniform() && problem_.graph->devices() <= kExactDevices &&
           Sets() <= kAllSetsUpTo && problem_.goal != Goal::kPrice;
  }

  // The program over what each set serves at most. Where a proof is asked for, the sets that it
  // takes are laid out exactly until the bound meets the placement, or the sets it takes are exact.
  void BoundBySets(Placement* placement) {
    while (true) {
      const Program made = MakeProgram(bounds_, problem_.allow_split);
      const absl::StatusOr<LinearProgram::Solution> solution = made.program.Solve(false);
      if (!solution.ok()) return;
      double& bound = placement->upper_bound;
      bound = bound > 0 ? std::min(bound, solution->bound) : solution->bound;
      if (bound <= placement->requests_per_second * kWorthBounding || !problem_.prove) break;
      bool sharper = false;
      for (size_t i = 0; i < bounds_.size(); ++i) {
        if (solution->values[static_cast<size_t>(made.variables[i])] < 0.5) continue;
        sharper = Sharpen(&bounds_[i], placement) || sharper;
      }
      if (!sharper || problem_.watch.Stopped()) break;
    }
    placement->upper_bound = std::max(placement->upper_bound, placement->requests_per_second);
  }

  // Replaces a set's bound by the rate of its best layout, proved. False: it was that already.
  bool Sharpen(Column* set, Placement* placement) {
    std::vector<int> members;
    LayoutProblem layout = LayoutOn(set->used, set->role, &members);
    if (!exact_keys_.insert(KeyOf(layout) + StrCat(set->rate)).second) return false;
    layout.exact = true;
    layout.known_rate = layouts_[KeyOf(layout)].rate.requests_per_second;
    const Layout best = BestLayout(layout);
    set->rate = std::max(layout.known_rate, best.rate.requests_per_second);
    exact_keys_.insert(KeyOf(layout) + StrCat(set->rate));
    if (best.stages.empty()) return true;
    layouts_[KeyOf(layout)] = best;
    Try(set->used, set->role, kUnbounded);  // a better column
    double ignored = 0;
    absl::StatusOr<Placement> better = Choose(problem_.allow_split, &ignored);
    if (!better.ok() || !Better(*better, *placement)) return true;
    better->upper_bound = placement->upper_bound;
    better->notes = placement->notes;
    *placement = *std::move(better);
    return true;
  }

  absl::StatusOr<Placement> Bounded(ClassSearchResult found) {
    bounded_ = true;
    AllSets(Counts(pools_.size(), 0), 0);
    double ignored = 0;
    for (const bool split : {false, true}) {
      if (columns_.empty() || (split && !problem_.allow_split)) continue;
      absl::StatusOr<Placement> placement = Choose(split, &ignored);
      if (!placement.ok()) continue;
      placement->upper_bound = found.upper_bound;
      if (found.placement && !Better(*placement, *found.placement)) continue;
      if (found.placement) placement->notes = found.placement->notes;
      found.placement = *std::move(placement);
    }
    if (!found.placement) return NothingFits();
    BoundBySets(&*found.placement);
    return *std::move(found.placement);
  }

  bool Better(const Placement& a, const Placement& b) const {
    if (problem_.goal != Goal::kPrice) return a.requests_per_second > b.requests_per_second;
    const double need = problem_.required_requests_per_second * (1 - 1e-6);
    const bool a_serves = a.requests_per_second >= need, b_serves = b.requests_per_second >= need;
    return a_serves != b_serves ? a_serves : a.usd_per_hour < b.usd_per_hour;
  }

  // --- Columns ---

  LayoutProblem LayoutOn(const Counts& counts, Role role, std::vector<int>* members) const {
    LayoutProblem layout;
    layout.model = problem_.model;
    layout.graph = problem_.graph;
    layout.lengths = lengths_;
    layout.options = problem_.options;
    layout.role = role;
    for (size_t p = 0; p < counts.size(); ++p) {
      if (counts[p] == 0) continue;
      members->push_back(static_cast<int>(p));
      layout.pools.push_back({pools_[p].spec, pools_[p].machine, counts[p]});
    }
    return layout;
  }

  // Sets with equal keys have equal layouts.
  std::string KeyOf(const LayoutProblem& layout) const {
    std::string key = StrCat(static_cast<int>(layout.role));
    for (const LayoutPool& pool : layout.pools) {
      absl::StrAppendFormat(&key, "|%p,%d", static_cast<const void*>(pool.spec), pool.count);
      for (const LayoutPool& other : layout.pools) {
        const LinkSpec& link = problem_.graph->Between(pool.machine, other.machine);
        absl::StrAppendFormat(&key, ",%g,%g", link.bytes_per_second, link.latency_seconds);
      }
    }
    return key;
  }

  Layout LayoutOf(LayoutProblem layout, double apart) {
    layout.known_rate = apart;
    if (!bounded_) {
      layout.exact = true;
      return BestLayout(layout);
    }
    LayoutBoundOptions options;
    options.max_tests = problem_.prove ? kProofTests : kQuickTests;
    const BoundedLayout found = BoundLayout(layout, options);
    bound_of_[KeyOf(layout)] = found.bound;
    return found.layout;
  }

  // The best layout of a set in a role as a column; its rate, 0 where it is not worth a column.
  double Try(const Counts& counts, Role role, double apart) {
    std::vector<int> members;
    LayoutProblem layout = LayoutOn(counts, role, &members);
    const std::string key = KeyOf(layout);
    auto known = layouts_.find(key);
    if (known == layouts_.end()) known = layouts_.emplace(key, LayoutOf(layout, apart)).first;
    if (bounded_ && bound_of_[key] > apart * kWorthBounding) {
      // The set's devices all together, whatever the best layout leaves idle.
      Column column;
      column.role = role;
      column.used = counts;
      column.rate = bound_of_[key];
      for (size_t p = 0; p < counts.size(); ++p)
        column.usd_per_hour += counts[p] * pools_[p].price_usd_per_hour;
      bounds_.push_back(std::move(column));
    }
    const Layout& best = known->second;
    if (best.stages.empty()) return 0;
    Column column;
    column.role = role;
    column.used.assign(pools_.size(), 0);
    column.rate = best.rate.requests_per_second;
    for (LayoutStage stage : best.stages) {
      stage.pool = members[static_cast<size_t>(stage.pool)];
      column.used[static_cast<size_t>(stage.pool)] += stage.width;
      column.usd_per_hour +=
          stage.width * pools_[static_cast<size_t>(stage.pool)].price_usd_per_hour;
      column.stages.push_back(stage);
    }
    AddColumn(std::move(column));
    return best.rate.requests_per_second;
  }

  // Of columns that use the same devices for the same, the best stays.
  void AddColumn(Column column) {
    const auto [at, fresh] =
        column_of_.emplace(std::pair(column.role, column.used), columns_.size());
    if (fresh) {
      columns_.push_back(std::move(column));
    } else if (column.rate > columns_[at->second].rate) {
      columns_[at->second] = std::move(column);
    }
  }

  std::vector<Role> Roles() const {
    if (!problem_.allow_split || lengths_.decode_steps <= 0) return {Role::kBoth};
    return {Role::kBoth, Role::kPrefill, Role::kDecode};
  }

  // What a pool's devices serve as two replicas, each of some of them.
  double BestSplitOfPool(const Counts& counts, Role role) {
    double best = 0;
    for (size_t p = 0; p < counts.size(); ++p) {
      for (int part = 1; part < counts[p]; ++part) {
        best = std::max(best, Alone(p, part, role) + Alone(p, counts[p] - part, role));
      }
    }
    return best;
  }

  double& Alone(size_t pool, int devices, Role role) {
    return alone_[{static_cast<int>(pool), devices, static_cast<int>(role)}];
  }

  void TryRoles(const Counts& counts) {
    for (const Role role : Roles()) {
      double apart = 0;
      int members = 0;
      for (size_t p = 0; p < counts.size(); ++p) {
        if (counts[p] == 0) continue;
        ++members;
        apart += Alone(p, counts[p], role);
      }
      if (members == 1) apart = BestSplitOfPool(counts, role);
      const double rate = Try(counts, role, apart);
      if (members != 1) continue;
      for (size_t p = 0; p < counts.size(); ++p) {
        // Served apart or as one: what these devices are worth.
        if (counts[p] > 0) Alone(p, counts[p], role) = std::max(rate, apart);
      }
    }
  }

  void AllSets(Counts counts, size_t pool) {
    if (pool == pools_.size()) {
      if (std::any_of(counts.begin(), counts.end(), [](int n) { return n > 0; })) TryRoles(counts);
      return;
    }
    for (int n = 0; n <= pools_[pool].count; ++n) {
      counts[pool] = n;
      AllSets(counts, pool + 1);
    }
  }

  // --- The packing ---

  struct Program {
    LinearProgram program;
    std::vector<int> pool_rows, variables;
  };

  Program MakeProgram(const std::vector<Column>& columns, bool split) const {
    Program made;
    LinearProgram& program = made.program;
    for (const DevicePool& pool : pools_)
      made.pool_rows.push_back(program.AddRow(-kUnbounded, pool.count));
    const bool price = problem_.goal == Goal::kPrice;
    const int prefill_row = program.AddRow(-kUnbounded, 0),
              decode_row = program.AddRow(-kUnbounded, 0);
    const int rate_row =
        program.AddRow(price ? problem_.required_requests_per_second : -kUnbounded, kUnbounded);
    const int cost_row = program.AddRow(
        -kUnbounded, problem_.goal == Goal::kBudget ? problem_.budget_usd_per_hour : kUnbounded);
    const int served = program.AddVariable(price ? 0 : 1, 0, kUnbounded, false);
    for (const int row : {prefill_row, decode_row, rate_row}) program.AddTerm(row, served, 1);
    for (const Column& column : columns) {
      const bool usable = split || column.role == Role::kBoth;
      const double value =
          price ? -column.usd_per_hour : (column.role == Role::kBoth ? column.rate : 0);
      const int y = program.AddVariable(value, 0, usable ? kUnbounded : 0, true);
      made.variables.push_back(y);
      for (size_t p = 0; p < pools_.size(); ++p) {
        if (column.used[p] > 0) program.AddTerm(made.pool_rows[p], y, column.used[p]);
      }
      program.AddTerm(cost_row, y, column.usd_per_hour);
      if (column.role == Role::kBoth) program.AddTerm(rate_row, y, column.rate);
      if (column.role == Role::kPrefill) program.AddTerm(prefill_row, y, -column.rate);
      if (column.role == Role::kDecode) program.AddTerm(decode_row, y, -column.rate);
    }
    return made;
  }

  absl::StatusOr<Placement> Choose(bool split, double* bound) {
    const Program made = MakeProgram(columns_, split);
    const bool price = problem_.goal == Goal::kPrice;
    const absl::StatusOr<LinearProgram::Solution> solution = made.program.Solve(false);
    if (!solution.ok()) {
      return absl::ResourceExhaustedError(
          price ? "the required rate cannot be served by this cluster" : "no placement was found");
    }
    *bound = solution->bound;
    std::vector<PlacedReplica> replicas;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const int copies = static_cast<int>(solution->values[static_cast<size_t>(made.variables[c])]);
      if (copies == 0) continue;
      PlacedReplica replica;
      replica.role = columns_[c].role;
      replica.stages = columns_[c].stages;
      replicas.insert(replicas.end(), static_cast<size_t>(copies), replica);
    }
    absl::StatusOr<Placement> placement = Assemble(problem_, std::move(replicas));
    if (!placement.ok()) return placement.status();
    for (const int row : made.pool_rows) {
      placement->shadow_prices.push_back(std::max(0.0, solution->duals[static_cast<size_t>(row)]));
    }
    return placement;
  }

  absl::Status NothingFits() const {
    const MemoryOptions& memory = problem_.options.memory;
    double usable = 0;
    for (const DevicePool& pool : pools_) {
      usable += pool.count * std::max(0.0, pool.spec->memory_bytes * memory.utilisation -
                                               memory.runtime_reserve_bytes);
    }
    const double weights =
        TotalParameters(*problem_.model) * problem_.model->weight_bytes_per_element;
    const double kv = lengths_.max_sequence_tokens * KvBytesPerToken(*problem_.model);
    if (weights + kv > usable) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("%s does not fit: weights %.2f GiB and KV of one sequence of %.0f tokens "
                          "%.2f GiB, all devices together "
                          "offer %.2f GiB: %.2f GiB are missing",
                          problem_.model->name, weights / kGib, lengths_.max_sequence_tokens,
                          kv / kGib, usable / kGib, (weights + kv - usable) / kGib));
    }
    return absl::ResourceExhaustedError(
        absl::StrFormat("no layout of %s was found: all devices together offer %.2f GiB of the "
                        "%.2f needed, but no stages of them "
                        "hold the layers, or none keeps the time per output token",
                        problem_.model->name, usable / kGib, (weights + kv) / kGib));
  }

  const PlacementProblem& problem_;
  const std::vector<DevicePool>& pools_;
  const LengthMoments lengths_;
  bool bounded_ = false;  // layouts come with bounds, not with proofs
  std::vector<Column> columns_;
  std::vector<Column> bounds_;              // what each device set serves at most
  std::map<std::string, double> bound_of_;  // by KeyOf
  std::set<std::string> exact_keys_;        // sets and rates that were proved
  std::map<std::string, Layout> layouts_;   // by KeyOf
  std::map<std::pair<Role, Counts>, size_t> column_of_;
  std::map<std::tuple<int, int, int>, double> alone_;  // (pool, devices, role) -> rate
};

}  // namespace

absl::StatusOr<Placement> SearchConfigurations(const PlacementProblem& problem) {
  return ConfigurationSearch(problem).Run();
}

}  // namespace tessera::scheduler
