// Decode steps as the planner predicts them of one device, from rates that its worker measures at
// its first start. Thread rule: one thread, while nothing else runs on the device.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/probe.h"
#include "proto/cluster.pb.h"
#include "proto/model.pb.h"

namespace tessera::bench {

// What a coordinator knows of the device behind its registration: its reading rate and its rates of
// products, as the profile of a device of a cluster.
absl::StatusOr<v1::MeasuredProfile> MeasureAsWorker(kernels::Device& device,
                                                    const kernels::ProbeOptions& probe);

// Seconds of a step of `batch` sequences with `context` tokens each, of a whole model. `kind`: of
// the catalogue; a name that it does not know has the defaults of the cost model.
absl::StatusOr<double> PredictedStepSeconds(const std::string& kind,
                                            const v1::MeasuredProfile& profile,
                                            const v1::Model& model, v1::DataType weights,
                                            int64_t batch, int64_t context);

}  // namespace tessera::bench
