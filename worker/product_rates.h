// How fast a device multiplies, by type of weights and rows: measured at its first start and kept
// in its table, for plans. Thread rule: one thread, while the device serves nothing.
#pragma once

#include <vector>

#include "kernels/device.h"
#include "kernels/probe.h"
#include "kernels/tuning_table.h"

namespace tessera::worker {

// Those of the table, or else measured now, within half of what the table may still spend, and
// kept. Empty where nothing can be measured: the log says why.
std::vector<kernels::TuningTable::Rate> ProductRates(kernels::Device& device,
                                                     const kernels::ProbeOptions& probe,
                                                     kernels::TuningTable& table);

}  // namespace tessera::worker
