#include "scheduler/search/baselines/exhaustive_search.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "scheduler/search/layout/assemble.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

struct Candidate {
  DeviceGroup group;
  double rate = 0;
};

class ExhaustiveSearch {
 public:
  ExhaustiveSearch(const PlacementProblem& problem, const GroupLayoutOptions& layouts)
      : problem_(problem),
        proved_(layouts.exact),
        layouts_(problem, layouts),
        used_(problem.graph->pools().size(), 0) {}

  absl::StatusOr<Placement> Run() {
    MakeCandidates();
    if (interrupted_) TakeLargest();
    Grow(0);
    if (!failure_.ok()) return failure_;
    if (interrupted_ && best_grouping_.empty()) {
      GroupLayoutOptions coarse;
      coarse.exact = false;  // quick, and better than nothing
      return GroupLayouts(problem_, coarse)
          .Finish({layouts_.Everything(Role::kBoth)}, evaluations_);
    }
    absl::StatusOr<Placement> placement = layouts_.Finish(best_grouping_, evaluations_);
    if (!placement.ok()) return placement;
    placement->interrupted = placement->interrupted || interrupted_;
    if (problem_.goal == Goal::kGoodput) {
      placement->notes.emplace_back().set_search_limit(v1::SEARCH_LIMIT_FASTEST_LAYOUTS);
    }
    if (!proved_ && problem_.goal != Goal::kGoodput) {
      placement->notes.emplace_back().set_search_limit(v1::SEARCH_LIMIT_QUICK_LAYOUTS);
    }
    // The price has no bound, nor has goodput, as not every layout was judged by it.
    const bool of_rate = problem_.goal == Goal::kThroughput || problem_.goal == Goal::kBudget;
    if (proved_ && !placement->interrupted && of_rate) placement->upper_bound = bound_;
    return placement;
  }

 private:
  // Every device set in every role that serves something.
  void MakeCandidates() {
    std::vector<Role> roles = {Role::kBoth};
    if (layouts_.MaySplit()) roles = {Role::kBoth, Role::kPrefill, Role::kDecode};
    const DeviceGroup all = layouts_.Everything(Role::kBoth);
    DeviceGroup group;
    group.counts.assign(all.counts.size(), 0);
    while (Next(all.counts, &group.counts)) {
      for (const Role role : roles) {
        if (interrupted_ = problem_.watch.Stopped(); interrupted_) return;
        problem_.watch.Report(StrCat("device sets with a role ", candidates_.size()));
        group.role = role;
        const PlacedReplica& replica = layouts_.ReplicaOf(group);
        if (replica.rate.requests_per_second <= 0) continue;
        candidates_.push_back({group, replica.rate.requests_per_second});
      }
    }
  }

  // Takes the largest of what is known: replicas that do both, the one that serves most first.
  void TakeLargest() {
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.rate > b.rate; });
    for (const Candidate& candidate : candidates_) {
      while (candidate.group.role == Role::kBoth && Take(candidate)) {
      }
    }
    if (!grouping_.empty()) Judge();
  }

  // False: there are no such devices left, or they cost too much.
  bool Take(const Candidate& candidate) {
    std::vector<int> used = used_;
    for (size_t p = 0; p < used.size(); ++p) {
      used[p] += candidate.group.counts[p];
      if (used[p] > problem_.graph->pools()[p].count) return false;
    }
    const double usd = problem_.graph->RentOf(used);
    if (problem_.goal == Goal::kBudget && usd > problem_.budget_usd_per_hour * (1 + 1e-9))
      return false;
    grouping_.push_back(candidate.group);
    rates_[static_cast<size_t>(candidate.group.role)] += candidate.rate;
    used_ = std::move(used);
    usd_per_hour_ = usd;
    return true;
  }

  // The next set within `counts`, as a number with these digits; false after the last.
  static bool Next(const std::vector<int>& counts, std::vector<int>* part) {
    for (size_t i = 0; i < counts.size(); ++i) {
      if (++(*part)[i] <= counts[i]) return true;
      (*part)[i] = 0;
    }
    return false;
  }

  // Adds candidates from `first` on to grouping_.
  void Grow(size_t first) {
    for (size_t c = first; c < candidates_.size() && failure_.ok() && !interrupted_; ++c) {
      if (!Take(candidates_[c])) continue;
      Judge();
      interrupted_ = interrupted_ || problem_.watch.Stopped();
      Grow(c);
      GiveBack(candidates_[c]);
    }
  }

  void GiveBack(const Candidate& candidate) {
    for (size_t p = 0; p < used_.size(); ++p) used_[p] -= candidate.group.counts[p];
    rates_[static_cast<size_t>(candidate.group.role)] -= candidate.rate;
    grouping_.pop_back();
  }

  void Judge() {
    ++evaluations_;
    layouts_.Report("groupings", evaluations_, best_);
    // Over free links.
    const Worth most = {rates_[static_cast<size_t>(Role::kBoth)] +
                            std::min(rates_[static_cast<size_t>(Role::kPrefill)],
                                     rates_[static_cast<size_t>(Role::kDecode)]),
                        usd_per_hour_};
    bound_ = std::max(bound_, most.requests_per_second);
    if (!Better(problem_, most, best_)) return;
    std::vector<PlacedReplica> replicas;
    for (const DeviceGroup& group : grouping_) replicas.push_back(layouts_.ReplicaOf(group));
    const absl::StatusOr<Placement> placement = Assemble(problem_, std::move(replicas));
    if (!placement.ok()) {
      failure_ = placement.status();
      return;
    }
    const Worth worth = {placement->requests_per_second, placement->usd_per_hour};
    if (!Better(problem_, worth, best_)) return;
    best_ = worth;
    best_grouping_ = grouping_;
  }

  const PlacementProblem& problem_;
  const bool proved_;
  GroupLayouts layouts_;
  std::vector<Candidate> candidates_;
  Grouping grouping_;
  double rates_[3] = {0, 0, 0};  // of grouping_, by role
  std::vector<int> used_;        // devices of grouping_, by pool
  double usd_per_hour_ = 0;      // what they cost to rent; of the last Take
  Worth best_;
  Grouping best_grouping_;
  double bound_ = 0;
  int64_t evaluations_ = 0;
  bool interrupted_ = false;
  absl::Status failure_;
};

}  // namespace

absl::StatusOr<Placement> SearchExhaustively(const PlacementProblem& problem,
                                             const ExhaustiveOptions& options) {
  if (problem.graph->devices() > options.most_devices) {
    return absl::FailedPreconditionError(
        StrCat("the search \"exact\" tries every way to deal at most ", options.most_devices,
               " devices, this cluster has ", problem.graph->devices(), ": use \"best\""));
  }
  int64_t work = (problem.allow_split ? 3 : 1) * problem.model->layers;
  for (const DevicePool& pool : problem.graph->pools()) work *= pool.count + 1;
  GroupLayoutOptions layouts = options.layouts;
  layouts.exact = layouts.exact || problem.prove || work <= options.most_proof_work;
  return ExhaustiveSearch(problem, layouts).Run();
}

}  // namespace tessera::scheduler
