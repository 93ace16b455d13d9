// Devices that compute nothing (worker/emulation), as --device names them: emulated:KIND,KIND.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "worker/devices/device_type.h"

namespace tessera::worker {

extern const DeviceType kRehearsedDevices;

// The kinds of `device`, which begins with the type's name.
std::vector<std::string> RehearsedKinds(std::string_view device);

}  // namespace tessera::worker
