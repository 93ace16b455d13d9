// A device's figures: its measured profile beats its kind, which has the defaults of the cost
// model. Thread rule: pure functions.
#pragma once

#include "proto/cluster.pb.h"
#include "scheduler/cost/hardware.h"

namespace tessera::scheduler {

// What a kind without efficiencies of its own reaches: about the least of the calibrated cards.
inline constexpr double kDefaultComputeEfficiency = 0.4;
inline constexpr double kDefaultMemoryEfficiency = 0.8;

DeviceSpec DescribedDevice(const v1::DeviceKind& kind, const v1::DeviceGroup& group);

// Whether it has any measured value.
bool Measures(const v1::MeasuredProfile& profile);

}  // namespace tessera::scheduler
