// The cheapest stages that hold all layers of a model: a covering program over layers.
//
// Problem: stages of many types, each with a price and a most layers it can hold; choose S of them,
// first and last among their own types, that together hold L layers, for the least price. With a
// limit on the sum of seconds (fixed ones and per layer), the limit is priced by a multiplier,
// which gives a lower bound of the price. Idea: dynamic programming over (stages, layers), with all
// types folded into what one stage of l layers costs at least. Complexity: O(S * L * l), l the
// most layers of a stage. Thread rule: one thread per program; buffers are reused. Deterministic.
#pragma once

#include <limits>
#include <vector>

namespace tessera::scheduler {

struct CoverItem {
  int type = 0;    // the caller's
  int layers = 0;  // most that it holds, >= 1
  double price = 0;
  double fixed = 0;  // seconds, whatever its layers
  double layer = 0;  // seconds per layer
};

class CoverProgram {
 public:
  struct Stage {
    CoverItem item;
    int layers = 0;  // of the solution; at most item.layers
  };
  struct Solution {
    double price = std::numeric_limits<double>::infinity();  // a lower bound of it
    double seconds = 0;         // of the stages, their layers as solved
    std::vector<Stage> stages;  // first to last
  };

  explicit CoverProgram(int layers) : layers_(layers) {}

  // Exactly `stages` (>= 2), for the least price + multiplier * (seconds - limit): for every
  // multiplier >= 0 no choice of stages whose seconds keep the limit is cheaper than the solution's
  // price. Multiplier 0: Stage::layers is the item's most, in all at least `layers`, and a solution
  // of a price above `worth` has no stages. Infinite price: impossible.
  Solution Cheapest(const std::vector<CoverItem>& first, const std::vector<CoverItem>& inner,
                    const std::vector<CoverItem>& last, int stages, double multiplier, double limit,
                    double worth);
  // The same of as many stages as it takes, all from one list.
  Solution CheapestOfAny(const std::vector<CoverItem>& items, double multiplier, double limit);

 private:
  using Row = std::vector<double>;
  // What one stage costs at least, by its layers: [l - 1].
  Row CostOf(const std::vector<CoverItem>& items, double multiplier) const;
  // after[x] for low <= x <= high, where before[x] counts for low_before <= x <= high_before.
  void AddStage(const Row& stage, const Row& before, int low_before, int high_before, int low,
                int high, Row* after) const;
  void AddLongStage(const Row& stage, const Row& before, int low_before, int low, int high,
                    Row* after) const;
  Stage Undo(const std::vector<CoverItem>& items, double multiplier, const Row& stage,
             const Row& before, double value, int* covered) const;
  void Finish(double multiplier, double limit, Solution* solution) const;

  int layers_;
  std::vector<Row> rows_;  // by stages
  // The best of items where seconds have no price.
  std::vector<const CoverItem*> by_layers_;
  std::vector<CoverItem> frontiers_[3];
};

}  // namespace tessera::scheduler
