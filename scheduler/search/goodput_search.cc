#include "scheduler/search/goodput_search.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_format.h"
#include "scheduler/search/configuration_search.h"
#include "scheduler/search/device_groups.h"
#include "scheduler/search/goodput.h"
#include "scheduler/search/linear_program.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

// Limits of TPOT that candidates are made for, as parts of the slowest replica's.
constexpr double kParts[] = {0.7, 0.5, 0.35, 0.2, 0.1};
constexpr int kFewDevices = 100;  // above, only kPartsOfMany of them
constexpr size_t kPartsOfMany = 2;
constexpr size_t kMostSets = 60;  // device sets that are laid out again
constexpr double kPackingGap = 1e-4;
constexpr int kPackingNodes = 4000;

class GoodputSearch {
 public:
  explicit GoodputSearch(const PlacementProblem& problem)
      : problem_(problem), pools_(problem.graph->pools()), groups_(problem, GroupLayoutOptions()) {}

  absl::StatusOr<Placement> Run() {
    absl::StatusOr<Placement> widest = Candidate(problem_.options.max_tpot_seconds, true);
    if (!widest.ok()) return widest.status();
    double slowest = 0;
    for (const PlacedReplica& replica : widest->replicas)
      slowest = std::max(slowest, replica.rate.tpot_seconds);
    size_t tried = 0;
    for (const double part : kParts) {
      if (problem_.graph->devices() > kFewDevices && tried++ == kPartsOfMany) break;
      if (problem_.watch.Stopped() || slowest <= 0) break;
      if (!Candidate(part * slowest, problem_.allow_split).ok()) break;  // tighter ones neither
    }
    LayOutAgain();
    Consider(Packed());
    if (best_.requests_per_second <= 0) return NothingInTime();
    best_.upper_bound = std::max(widest->upper_bound, 0.0);
    best_.interrupted = problem_.watch.Stopped();
    best_.evaluations = 0;
    best_.notes.push_back(absl::StrFormat(
        "the placement that serves most, %.3f requests/s, would serve %.3f within their limits",
        widest->requests_per_second, widest_goodput_));
    best_.notes.push_back("heuristic: candidates of several TPOT limits, packed by their goodput");
    return std::move(best_);
  }

 private:
  struct Column {
    PlacedReplica replica;
    std::vector<int> used;  // devices per pool
    double rate = 0;
  };

  // What serves most with this limit of TPOT, considered for its goodput.
  absl::StatusOr<Placement> Candidate(double max_tpot, bool split) {
    PlacementProblem other = problem_;
    other.goal = Goal::kThroughput;
    other.options.max_tpot_seconds = std::min(max_tpot, problem_.options.max_tpot_seconds);
    other.allow_split = split && problem_.allow_split;
    other.prove = problem_.prove && candidates_ == 0;
    other.bound = candidates_ == 0;  // of tighter ones nobody asks
    problem_.watch.Report(absl::StrFormat("candidates judged: %d", ++candidates_));
    absl::StatusOr<Placement> found = SearchConfigurations(other, &known_);
    if (!found.ok()) return found;
    const double goodput = Consider(Assemble(problem_, found->replicas, groups_.judge()));
    if (candidates_ == 1) widest_goodput_ = goodput;
    bool splits = false;
    for (const PlacedReplica& replica : found->replicas) {
      splits = splits || replica.role != Role::kBoth;
      Add(replica);
    }
    if (splits && !problem_.watch.Stopped()) (void)Candidate(max_tpot, false).ok();
    return found;
  }

  // Its goodput.
  double Consider(absl::StatusOr<Placement> placement) {
    if (!placement.ok()) return 0;
    const double goodput = placement->requests_per_second;
    if (goodput > best_.requests_per_second) best_ = *std::move(placement);
    return goodput;
  }

  std::vector<int> UsedBy(const PlacedReplica& replica) const {
    std::vector<int> used(pools_.size(), 0);
    for (const LayoutStage& stage : replica.stages)
      used[static_cast<size_t>(stage.pool)] += stage.width;
    return used;
  }

  double GoodputOf(const PlacedReplica& replica) {
    return groups_.judge()->RateOf(SpecOf(problem_, replica)).requests_per_second;
  }

  // A column for role both; of those with equal devices the best stays.
  void Add(const PlacedReplica& replica) {
    if (replica.role != Role::kBoth || replica.stages.empty()) return;
    Column column = {replica, UsedBy(replica), GoodputOf(replica)};
    if (column.rate <= 0) {
      sets_.insert(column.used);  // laid out otherwise it may serve
      return;
    }
    sets_.insert(column.used);
    const auto [at, fresh] = column_of_.emplace(column.used, columns_.size());
    if (fresh) {
      columns_.push_back(std::move(column));
    } else if (column.rate > columns_[at->second].rate) {
      columns_[at->second] = std::move(column);
    }
  }

  // The devices of every replica, laid out for goodput; of small sets also halves of a pool.
  void LayOutAgain() {
    std::set<std::vector<int>> sets = sets_;
    for (const std::vector<int>& set : sets_) {
      for (size_t p = 0; p < set.size(); ++p) {
        std::vector<int> alone(set.size(), 0);
        alone[p] = set[p];
        if (set[p] > 0) sets.insert(alone);
        alone[p] = set[p] / 2;
        if (set[p] > 1) sets.insert(alone);
      }
    }
    size_t left = kMostSets;
    for (const std::vector<int>& set : sets) {
      if (left-- == 0 || problem_.watch.Stopped()) break;
      Add(groups_.ReplicaOf({Role::kBoth, set}));
    }
  }

  // Replicas within one pool stand in every pool of such devices.
  void Spread() {
    const size_t known = columns_.size();
    for (size_t c = 0; c < known; ++c) {
      const int from = columns_[c].replica.stages.front().pool;
      const bool one_pool =
          std::all_of(columns_[c].replica.stages.begin(), columns_[c].replica.stages.end(),
                      [&](const LayoutStage& stage) { return stage.pool == from; });
      for (size_t p = 0; one_pool && p < pools_.size(); ++p) {
        const DevicePool& pool = pools_[p];
        if (static_cast<int>(p) == from || pool.spec != pools_[static_cast<size_t>(from)].spec ||
            pool.count < columns_[c].used[static_cast<size_t>(from)]) {
          continue;
        }
        PlacedReplica moved = columns_[c].replica;
        for (LayoutStage& stage : moved.stages) stage.pool = static_cast<int>(p);
        Add(moved);
      }
    }
  }

  // Of all columns those that serve most together.
  absl::StatusOr<Placement> Packed() {
    Spread();
    if (columns_.empty()) return absl::NotFoundError("no replica meets the objectives");
    LinearProgram program;
    std::vector<int> rows, variables;
    for (const DevicePool& pool : pools_) rows.push_back(program.AddRow(-kUnbounded, pool.count));
    for (const Column& column : columns_) {
      variables.push_back(program.AddVariable(column.rate, 0, kUnbounded, true));
      for (size_t p = 0; p < pools_.size(); ++p) {
        if (column.used[p] > 0) program.AddTerm(rows[p], variables.back(), column.used[p]);
      }
    }
    const absl::StatusOr<LinearProgram::Solution> solution =
        program.Solve(false, kPackingGap, kPackingNodes);
    if (!solution.ok()) return solution.status();
    std::vector<PlacedReplica> replicas;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const int copies =
          static_cast<int>(std::lround(solution->values[static_cast<size_t>(variables[c])]));
      replicas.insert(replicas.end(), static_cast<size_t>(std::max(0, copies)),
                      columns_[c].replica);
    }
    return Assemble(problem_, std::move(replicas), groups_.judge());
  }

  absl::Status NothingInTime() const {
    return absl::ResourceExhaustedError(StrCat(
        problem_.model->name,
        " fits, but no replica that was found meets the objectives for enough requests, even one "
        "request alone; relax time_to_first_token, time_per_output_token or end_to_end, or ask "
        "for less attainment"));
  }

  const PlacementProblem& problem_;
  const std::vector<DevicePool>& pools_;
  GroupLayouts groups_;
  KnownLayouts known_;
  Placement best_;
  int candidates_ = 0;
  double widest_goodput_ = 0;
  std::set<std::vector<int>> sets_;
  std::vector<Column> columns_;
  std::map<std::vector<int>, size_t> column_of_;
};

}  // namespace

absl::StatusOr<Placement> SearchGoodput(const PlacementProblem& problem) {
  return GoodputSearch(problem).Run();
}

}  // namespace tessera::scheduler
