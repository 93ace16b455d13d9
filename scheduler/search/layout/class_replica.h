// A replica whose devices are named by class: a column of the configuration program.
//
// Thread rule: pure functions of their arguments; the shapes' tables are filled on demand. Rates
// are those of the best links that the classes allow; where the devices really stand is decided
// later, and judged again there.
#pragma once

#include <compare>
#include <string>
#include <vector>

#include "scheduler/search/layout/device_classes.h"
#include "scheduler/search/layout/problem.h"
#include "scheduler/search/layout/stage_shapes.h"

namespace tessera::scheduler {

struct ClassStage {
  int device_class = 0;
  int width = 0;
  int layers = 0;
  auto operator<=>(const ClassStage&) const = default;
};

struct ClassReplica {
  Role role = Role::kBoth;
  std::vector<ClassStage> stages;
  double rate = 0;  // requests per second
};

// For the cost model; borrows the devices behind the classes.
ReplicaSpec SpecOf(const DeviceClasses& classes, const ClassReplica& replica);

// Puts stages that share a machine, a class or a group beside each other; first and last stay.
void OrderStages(const DeviceClasses& classes, ClassReplica* replica);

// Deals the model's layers to the replica's stages so that the slowest is as fast as it can be in
// a step of `rows` decode rows with room for `kv_tokens` tokens. False: they do not fit.
bool DealLayers(const DeviceClasses& classes, StageShapes* shapes, double rows, double kv_tokens,
                ClassReplica* replica);

// Devices of each class that it takes.
std::vector<int> DevicesOf(const DeviceClasses& classes, const ClassReplica& replica);

}  // namespace tessera::scheduler
