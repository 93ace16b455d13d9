#include "scheduler/search/layer_dealing.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>

#include "absl/container/inlined_vector.h"

namespace tessera::scheduler {
namespace {

double LayersWithin(const DealtStage& stage, double seconds) {
  return (seconds - stage.fixed) / stage.layer;
}

// When stages that hold more than one layer would be done if layers could be cut; they hold no more
// than all layers when theirs are rounded down.
double WaterLevel(int layers, const std::vector<DealtStage>& stages) {
  double level = std::numeric_limits<double>::infinity();
  for (;;) {
    double rest = layers, per_second = 0;
    for (const DealtStage& stage : stages) {
      if (LayersWithin(stage, level) < 1) {
        rest -= 1;
        continue;
      }
      rest += stage.fixed / stage.layer;
      per_second += 1 / stage.layer;
    }
    if (per_second <= 0) return 0;
    const double lower = rest / per_second;
    if (lower >= level) return level;
    level = lower;
  }
}

}  // namespace

bool DealLayersEvenly(int layers, std::vector<DealtStage>* stages) {
  int64_t room = 0;
  for (const DealtStage& stage : *stages) {
    if (stage.most < 1) return false;
    room += stage.most;
  }
  if (room < layers) return false;
  int rest = layers;
  const double level = WaterLevel(layers, *stages);
  for (DealtStage& stage : *stages) {
    const double within = std::floor(LayersWithin(stage, level));
    stage.layers = static_cast<int>(std::clamp(within, 1.0, static_cast<double>(stage.most)));
    rest -= stage.layers;
  }
  if (rest < 0) {  // more stages than layers, or rounding
    rest = layers;
    for (DealtStage& stage : *stages) rest -= stage.layers = 1;
    if (rest < 0) return false;
  }
  for (DealtStage& stage : *stages) stage.next = stage.fixed + stage.layer * (stage.layers + 1);
  for (; rest > 0; --rest) {
    DealtStage* first = nullptr;
    for (DealtStage& stage : *stages) {
      if (stage.layers < stage.most && (first == nullptr || stage.next < first->next))
        first = &stage;
    }
    if (first == nullptr) return false;
    ++first->layers;
    first->next = first->fixed + first->layer * (first->layers + 1);
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
  std::sort(fastest_first.begin(), fastest_first.end(), [](const DealtStage* a, const DealtStage* b) {
    return std::tie(a->layer, a) < std::tie(b->layer, b);
  });
  for (DealtStage* stage : fastest_first) {
    const double within = std::floor(LayersWithin(*stage, seconds));
    const int more =
        static_cast<int>(std::clamp(within, 1.0, static_cast<double>(stage->most))) - 1;
    stage->layers += std::min(more, rest);
    rest -= std::min(more, rest);
  }
  return rest == 0;
}

}  // namespace tessera::scheduler
