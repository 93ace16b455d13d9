#include "scheduler/search/baselines/genetic_search.h"

#include <algorithm>
#include <utility>

namespace tessera::scheduler {
namespace {

class GeneticSearch {
 public:
  GeneticSearch(const PlacementProblem& problem, const GeneticOptions& options)
      : problem_(problem),
        options_(options),
        layouts_(problem, options.layouts),
        random_(options.seed) {}

  absl::StatusOr<Placement> Run() {
    Populate();
    int since_gain = 0;
    while (evaluations_ < options_.most_evaluations && since_gain < options_.patience &&
           layouts_.layouts() < options_.most_layouts && !problem_.watch.Stopped()) {
      Grouping child = Tournament().grouping;
      do {
        Mutate(&child);
      } while (random_.Unit() < options_.second_mutation);
      const Worth before = best_.worth;
      Add(std::move(child));
      layouts_.Report("candidates", evaluations_, best_.worth);
      since_gain = Better(problem_, best_.worth, before) ? 0 : since_gain + 1;
    }
    return layouts_.Finish(best_.grouping, evaluations_);
  }

 private:
  struct Individual {
    Grouping grouping;
    Worth worth;
  };

  void Populate() {
    const int devices = problem_.graph->devices();
    // As many groups as 1, 2, 3, ... then in larger steps: how many are good is not known yet.
    for (int groups = 1; groups <= devices; groups += std::max(1, groups / options_.start_growth)) {
      Add(ClusterByLinks(problem_, groups));
    }
  }

  void Mutate(Grouping* grouping) {
    switch (random_.Below(4)) {
      case 0: MergeTwo(&random_, grouping); break;
      case 1: SplitOne(&random_, grouping); break;
      case 2: SwapDevices(&random_, grouping); break;
      default: MoveDevices(&random_, layouts_, grouping);
    }
  }

  const Individual& Tournament() {
    const auto pick = [&]() -> const Individual& {
      return population_[static_cast<size_t>(random_.Below(static_cast<int>(population_.size())))];
    };
    const Individual &a = pick(), &b = pick();
    return Better(problem_, b.worth, a.worth) ? b : a;
  }

  // The population keeps the best, no two alike.
  void Add(Grouping grouping) {
    ++evaluations_;
    for (const Individual& other : population_) {
      if (other.grouping == grouping) return;
    }
    Individual individual{std::move(grouping), {}};
    individual.worth = layouts_.WorthOf(individual.grouping);
    if (best_.grouping.empty() || Better(problem_, individual.worth, best_.worth))
      best_ = individual;
    population_.push_back(std::move(individual));
    if (static_cast<int>(population_.size()) <= options_.population) return;
    const auto worst = std::min_element(population_.begin(), population_.end(),
                                        [&](const Individual& a, const Individual& b) {
                                          return Better(problem_, b.worth, a.worth);
                                        });
    population_.erase(worst);
  }

  const PlacementProblem& problem_;
  const GeneticOptions options_;
  GroupLayouts layouts_;
  SeededRandom random_;
  std::vector<Individual> population_;
  Individual best_;
  int evaluations_ = 0;
};

}  // namespace

absl::StatusOr<Placement> SearchGenetic(const PlacementProblem& problem,
                                        const GeneticOptions& options) {
  return GeneticSearch(problem, options).Run();
}

}  // namespace tessera::scheduler
