#include "scheduler/search/layout/layer_dealing.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "absl/container/inlined_vector.h"

namespace tessera::scheduler {
namespace {

// Whole layers of a stage within that time: one at least, and no more than it can hold.
int LayersWithin(const DealtStage& stage, double seconds) {
  const double layers = (seconds - stage.fixed) / stage.layer;
  return static_cast<int>(std::clamp(layers, 1.0, static_cast<double>(stage.most)));
}

}  // namespace

// When stages that hold more than one layer would be done if layers could be cut; they hold no more
// than all layers when theirs are rounded down.
double LeastSlowestSeconds(int layers, const std::vector<DealtStage>& stages) {
  struct Speed {
    double fixed_layers, layers_per_second;
  };
  absl::InlinedVector<Speed, 16> speeds;
  for (const DealtStage& stage : stages)
    speeds.push_back({stage.fixed / stage.layer, 1 / stage.layer});
  double level = std::numeric_limits<double>::infinity();
  for (;;) {
    double rest = layers, per_second = 0;
    for (size_t i = 0; i < stages.size(); ++i) {
      if (level - stages[i].fixed < stages[i].layer) {
        rest -= 1;
        continue;
      }
      rest += speeds[i].fixed_layers;
      per_second += speeds[i].layers_per_second;
    }
    if (per_second <= 0) return 0;
    const double lower = rest / per_second;
    if (lower >= level) return level;
    level = lower;
  }
}

bool DealLayersEvenly(int layers, std::vector<DealtStage>* stages) {
  return DealLayersEvenly(layers, LeastSlowestSeconds(layers, *stages), stages);
}

bool DealLayersEvenly(int layers, double least_seconds, std::vector<DealtStage>* stages) {
  int rest = layers;
  for (DealtStage& stage : *stages) {
    if (stage.most < 1) return false;
    stage.layers = LayersWithin(stage, least_seconds);
    rest -= stage.layers;
  }
  if (rest < 0) {  // more stages than layers, or rounding
    rest = layers;
    for (DealtStage& stage : *stages) rest -= stage.layers = 1;
    if (rest < 0) return false;
  }
  constexpr double kFull = std::numeric_limits<double>::infinity();
  absl::InlinedVector<double, 16> next;  // seconds of each with one layer more
  const auto next_of = [](const DealtStage& stage) {
    return stage.layers < stage.most ? stage.fixed + stage.layer * (stage.layers + 1) : kFull;
  };
  for (const DealtStage& stage : *stages) next.push_back(next_of(stage));
  for (; rest > 0; --rest) {
    // The least first, the place then: which it is no CPU can foresee.
    double least = kFull;
    for (const double seconds : next) least = std::min(least, seconds);
    if (least == kFull) return false;
    const auto at = static_cast<size_t>(std::find(next.begin(), next.end(), least) - next.begin());
    ++(*stages)[at].layers;
    next[at] = next_of((*stages)[at]);
  }
  return true;
}

bool DealLayersWithin(int layers, double seconds, std::vector<DealtStage>* stages) {
  absl::InlinedVector<DealtStage*, 16> fastest_first;
  int rest = layers;
  for (DealtStage& stage : *stages) {
    if (stage.most < 1) return false;
    rest -= stage.layers = 1;
    fastest_first.push_back(&stage);
  }
  if (rest < 0) return false;
  std::sort(fastest_first.begin(), fastest_first.end(),
            [](const DealtStage* a, const DealtStage* b) {
              return std::tie(a->layer, a) < std::tie(b->layer, b);
            });
  for (DealtStage* stage : fastest_first) {
    const int more = LayersWithin(*stage, seconds) - 1;
    stage->layers += std::min(more, rest);
    rest -= std::min(more, rest);
  }
  return rest == 0;
}

}  // namespace tessera::scheduler
