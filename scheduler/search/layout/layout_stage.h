// A stage as layouts and placements write it. Thread rule: a plain value.
#pragma once

#include <memory>
#include <utility>
#include <vector>

namespace tessera::scheduler {

// Devices of one pool in a stage.
struct LayoutPart {
  int pool = 0;  // index into the problem's pools
  int width = 0;
};

// What makes a stage one of unlike devices, or of several machines.
struct StageMix {
  std::vector<LayoutPart> others;  // beside the stage's own pool, in rank order after it
  std::vector<double> fractions;   // of each rank, by which blocks are cut; they sum to 1
};

struct LayoutStage {
  int pool = 0;   // index into the problem's pools
  int width = 0;  // devices of that pool
  int layers = 0;
  std::shared_ptr<const StageMix> mix = nullptr;  // null: all devices are of the pool
};

// Calls `each` with every part of the stage, in rank order.
template <typename Each>
void ForEachPart(const LayoutStage& stage, const Each& each) {
  each(LayoutPart{stage.pool, stage.width});
  if (stage.mix == nullptr) return;
  for (const LayoutPart& part : stage.mix->others) each(part);
}

// Devices of all parts: the tensor-parallel width.
inline int WidthOf(const LayoutStage& stage) {
  int width = 0;
  ForEachPart(stage, [&](const LayoutPart& part) { width += part.width; });
  return width;
}

// The stage with other pool indices, as `moved` maps them.
template <typename Moved>
LayoutStage OnPools(LayoutStage stage, const Moved& moved) {
  stage.pool = moved(stage.pool);
  if (stage.mix == nullptr) return stage;
  StageMix mix = *stage.mix;
  for (LayoutPart& part : mix.others) part.pool = moved(part.pool);
  stage.mix = std::make_shared<const StageMix>(std::move(mix));
  return stage;
}

}  // namespace tessera::scheduler
