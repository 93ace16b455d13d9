// A device's figures: its measured profile beats its kind, which has the defaults of the cost
// model. Thread rule: pure functions.
#pragma once

#include <string>

#include "proto/cluster.pb.h"
#include "scheduler/cost/hardware.h"

namespace tessera::scheduler {

// What a kind without efficiencies of its own reaches: about the least of the calibrated cards.
inline constexpr double kDefaultComputeEfficiency = 0.4;
inline constexpr double kDefaultMemoryEfficiency = 0.8;

// Requires: WhyNoProfile finds nothing wrong with the group's.
DeviceSpec DescribedDevice(const v1::DeviceKind& kind, const v1::DeviceGroup& group);

// What is wrong with it; empty: nothing.
std::string WhyNoProfile(const v1::MeasuredProfile& profile);

}  // namespace tessera::scheduler
