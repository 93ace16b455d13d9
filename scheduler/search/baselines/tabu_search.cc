#include "scheduler/search/baselines/tabu_search.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace tessera::scheduler {
namespace {

class TabuSearch {
 public:
  TabuSearch(const PlacementProblem& problem, const TabuOptions& options)
      : problem_(problem),
        options_(options),
        layouts_(problem, options.layouts),
        random_(options.seed) {}

  absl::StatusOr<Placement> Run() {
    Start();
    Candidate here = best_;
    int since_gain = 0;
    for (int step = 0; step < options_.steps && since_gain < options_.patience && !Spent();
         ++step) {
      Candidate next;
      for (int i = 0; i < options_.neighbours; ++i) {
        Candidate neighbour = Judged(Neighbour(here.grouping));
        if (neighbour.grouping.empty() || IsTabu(neighbour.grouping)) continue;
        if (next.grouping.empty() || Better(problem_, neighbour.worth, next.worth))
          next = std::move(neighbour);
      }
      layouts_.Report("groupings", evaluations_, best_.worth);
      ++since_gain;
      if (next.grouping.empty()) continue;
      tabu_.push_back(here.grouping);
      if (static_cast<int>(tabu_.size()) > options_.tabu_length) tabu_.pop_front();
      here = std::move(next);
      if (!Better(problem_, here.worth, best_.worth)) continue;
      best_ = here;
      since_gain = 0;
    }
    return layouts_.Finish(best_.grouping, evaluations_);
  }

 private:
  struct Candidate {
    Grouping grouping;
    Worth worth;
  };

  bool Spent() const {
    return layouts_.layouts() >= options_.most_layouts || problem_.watch.Stopped();
  }

  // Clusters along the links, as many as serve most. Roles are split where that serves at all.
  void Start() {
    Candidate whole;
    const int devices = problem_.graph->devices();
    for (int groups = 1; groups <= devices; groups += std::max(1, groups / options_.start_growth)) {
      const Grouping clusters = ClusterByLinks(problem_, groups);
      Keep(Judged(clusters), &whole);
      if (!layouts_.MaySplit() || clusters.size() < 2) continue;
      const Grouping split = layouts_.WithRoles(clusters);
      if (Candidate candidate = Judged(split); candidate.worth.requests_per_second > 0) {
        splits_ = true;
        Keep(std::move(candidate), &best_);
      }
    }
    if (!splits_) best_ = std::move(whole);
  }

  void Keep(Candidate candidate, Candidate* best) const {
    if (best->grouping.empty() || Better(problem_, candidate.worth, best->worth))
      *best = std::move(candidate);
  }

  Candidate Judged(Grouping grouping) {
    ++evaluations_;
    Candidate candidate{std::move(grouping), {}};
    candidate.worth = layouts_.WorthOf(candidate.grouping);
    return candidate;
  }

  bool IsTabu(const Grouping& grouping) const {
    return std::find(tabu_.begin(), tabu_.end(), grouping) != tabu_.end();
  }

  Grouping Neighbour(Grouping grouping) {
    switch (random_.Below(splits_ ? 5 : 4)) {
      case 0: SplitOne(&random_, &grouping); break;
      case 1: MergeTwo(&random_, &grouping); break;
      case 2: SwapDevices(&random_, &grouping); break;
      case 3: MoveDevices(&random_, layouts_, &grouping); break;
      default: Flip(&grouping);
    }
    return grouping;
  }

  void Flip(Grouping* grouping) {
    if (grouping->empty()) return;
    const int which = random_.Below(static_cast<int>(grouping->size()));
    Role& role = (*grouping)[static_cast<size_t>(which)].role;
    role = role == Role::kPrefill ? Role::kDecode : Role::kPrefill;
    Normalise(grouping);
  }

  const PlacementProblem& problem_;
  const TabuOptions options_;
  GroupLayouts layouts_;
  SeededRandom random_;
  bool splits_ = false;  // groups prefill or decode; else they do both
  Candidate best_;
  std::deque<Grouping> tabu_;
  int64_t evaluations_ = 0;
};

}  // namespace

absl::StatusOr<Placement> SearchTabu(const PlacementProblem& problem, const TabuOptions& options) {
  return TabuSearch(problem, options).Run();
}

}  // namespace tessera::scheduler
