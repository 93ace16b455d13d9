#include "scheduler/search/layout/class_replica.h"

#include <algorithm>
#include <tuple>

#include "scheduler/search/layout/layer_dealing.h"

namespace tessera::scheduler {

ReplicaSpec SpecOf(const DeviceClasses& classes, const ClassReplica& replica) {
  ReplicaSpec spec;
  spec.role = replica.role;
  int layer = 0;
  const size_t stages = replica.stages.size();
  spec.stages.reserve(stages);
  spec.hops.reserve(stages);
  int left = 0;  // devices of the current stage's class that its machine still has
  for (size_t i = 0; i < stages; ++i) {
    const ClassStage& stage = replica.stages[i];
    const DeviceClass& of = classes[stage.device_class];
    StageSpec out;
    out.ranks.assign(static_cast<size_t>(stage.width), of.spec);
    out.communicator = {{stage.width, of.inside, false}};
    out.first_layer = layer;
    out.layers = stage.layers;
    out.holds_embedding = i == 0;
    out.holds_head = i + 1 == stages;
    layer += stage.layers;
    spec.stages.push_back(std::move(out));
    if (stages == 1) break;
    const ClassStage& next = replica.stages[(i + 1) % stages];
    const bool same = next.device_class == stage.device_class;
    left = (i > 0 && left >= stage.width ? left : of.per_machine) - stage.width;
    const LinkSpec& apart = classes.Apart(stage.device_class, next.device_class);
    const bool together =
        same ? left >= next.width : classes.Together(stage.device_class, next.device_class);
    spec.hops.push_back(together || apart.bytes_per_second <= 0 ? of.inside : apart);
    if (!same) left = 0;
  }
  return spec;
}

void OrderStages(const DeviceClasses& classes, ClassReplica* replica) {
  if (replica->stages.size() < 4) return;
  const ClassStage first = replica->stages.front(), last = replica->stages.back();
  const auto key = [&](const ClassStage& stage) {
    const DeviceClass& of = classes[stage.device_class];
    const auto near = [&](const ClassStage& other) {
      const DeviceClass& its = classes[other.device_class];
      if (stage.device_class == other.device_class) return 3;
      if (of.shape == its.shape) return 2;
      return of.group == its.group ? 1 : 0;
    };
    return std::tuple(near(last) - near(first), of.group, of.shape, stage.device_class,
                      -stage.width);
  };
  std::stable_sort(replica->stages.begin() + 1, replica->stages.end() - 1,
                   [&](const ClassStage& a, const ClassStage& b) { return key(a) < key(b); });
}

bool DealLayers(const DeviceClasses& classes, StageShapes* shapes, double rows, double kv_tokens,
                ClassReplica* replica) {
  const size_t stages = replica->stages.size();
  std::vector<int> shape(stages);
  for (size_t i = 0; i < stages; ++i) {
    const DeviceClass& of = classes[replica->stages[i].device_class];
    shape[i] = shapes->Intern(*of.spec, of.inside, replica->stages[i].width);
  }
  const std::vector<ShapeSeconds>& seconds = shapes->SecondsAt(replica->role, rows);
  std::vector<DealtStage> dealt(stages);
  for (size_t i = 0; i < stages; ++i) {
    const ShapeSeconds& s = seconds[static_cast<size_t>(shape[i])];
    const double most = (*shapes)[shape[i]].MemoryLayers(PlaceOf(i, stages), kv_tokens);
    dealt[i].fixed = s.fixed + (i + 1 == stages ? s.head : 0);
    dealt[i].layer = s.layer;
    dealt[i].most = static_cast<int>(most * (1 + 1e-12));
  }
  if (!DealLayersEvenly(shapes->model().layers, &dealt)) return false;
  for (size_t i = 0; i < stages; ++i) replica->stages[i].layers = dealt[i].layers;
  return true;
}

std::vector<int> DevicesOf(const DeviceClasses& classes, const ClassReplica& replica) {
  std::vector<int> devices(static_cast<size_t>(classes.size()), 0);
  for (const ClassStage& stage : replica.stages)
    devices[static_cast<size_t>(stage.device_class)] += stage.width;
  return devices;
}

}  // namespace tessera::scheduler
