// Where what was measured of a card is kept: a file of its own in a folder of the user's.
// Thread rule: see DeviceType.
#pragma once

#include <memory>
#include <string>

#include "kernels/tuning_table.h"
#include "worker/devices/device_type.h"

namespace tessera::worker {

// The table of the device `id` ("GPU-..."), whose measurements hold for this `driver` (with its
// libraries) and build. Null where `flags` say kNoTuning, or name no folder and `folder`, what is
// usual, is empty.
std::shared_ptr<kernels::TuningTable> OpenTuning(const DeviceFlags& flags, const std::string& id,
                                                 const std::string& driver,
                                                 const std::string& folder);

}  // namespace tessera::worker
