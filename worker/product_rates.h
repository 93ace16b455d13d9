// How fast a device multiplies, by type of weights and rows: measured at its first starts and kept
// in its table, for plans. Thread rule: one thread, while the device serves nothing.
#pragma once

#include <vector>

#include "kernels/device.h"
#include "kernels/probe.h"
#include "kernels/tuning_table.h"

namespace tessera::worker {

// Those of the table, and those of types of weights of which it has none: measured now and kept. No
// type is begun once half of what the table may still spend is over; the next start goes on with
// those that are left. Empty where nothing can be measured: the log says why.
std::vector<kernels::TuningTable::Rate> ProductRates(kernels::Device& device,
                                                     const kernels::ProbeOptions& probe,
                                                     kernels::TuningTable& table);

}  // namespace tessera::worker
