#include "tests/scheduler/search/every_layout.h"

#include <utility>

namespace tessera::tests {
namespace {

using scheduler::LayoutStage;
using Visit = std::function<void(const std::vector<LayoutStage>& stages)>;

class Growth {
 public:
  Growth(const scheduler::LayoutProblem& problem, const Visit& visit)
      : layers_(problem.model->layers), visit_(visit) {
    for (const auto& pool : problem.pools) free_.push_back(pool.count);
  }

  void From(int layer) {
    const int rest = layers_ - layer;
    if (rest == 0) return visit_(stages_);
    for (size_t pool = 0; pool < free_.size(); ++pool) {
      for (int width = 1; width <= free_[pool]; ++width) {
        free_[pool] -= width;
        for (int layers = 1; layers <= rest; ++layers) {
          stages_.push_back({static_cast<int>(pool), width, layers});
          From(layer + layers);
          stages_.pop_back();
        }
        free_[pool] += width;
      }
    }
  }

 private:
  const int layers_;
  const Visit& visit_;
  std::vector<int> free_;
  std::vector<LayoutStage> stages_;
};

}  // namespace

void ForEveryLayout(const scheduler::LayoutProblem& problem, const Visit& visit) {
  Growth(problem, visit).From(0);
}

scheduler::ReplicaSpec ReplicaOf(const scheduler::LayoutProblem& problem,
                                 const std::vector<LayoutStage>& stages) {
  const auto pool_of = [&](const LayoutStage& stage) -> const scheduler::LayoutPool& {
    return problem.pools[static_cast<size_t>(stage.pool)];
  };
  scheduler::ReplicaSpec replica;
  replica.role = problem.role;
  int first = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    const scheduler::LayoutPool& pool = pool_of(stages[i]);
    scheduler::StageSpec stage;
    stage.ranks.assign(static_cast<size_t>(stages[i].width), pool.spec);
    stage.communicator = {
        {stages[i].width, problem.graph->Between(pool.machine, pool.machine), false}};
    stage.first_layer = first;
    stage.layers = stages[i].layers;
    stage.holds_embedding = i == 0;
    stage.holds_head = i + 1 == stages.size();
    first += stage.layers;
    replica.stages.push_back(std::move(stage));
    if (stages.size() == 1) continue;
    replica.hops.push_back(
        problem.graph->Between(pool.machine, pool_of(stages[(i + 1) % stages.size()]).machine));
  }
  return replica;
}

}  // namespace tessera::tests
