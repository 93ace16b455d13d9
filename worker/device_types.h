// The types of devices that workers compute on, one line each. Thread rule: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "worker/devices/device_type.h"

namespace tessera::worker {

std::span<const DeviceType* const> DeviceTypes();

// The type of `device` (--device); null: there is no such device.
const DeviceType* FindDeviceType(std::string_view device,
                                 std::span<const DeviceType* const> types = DeviceTypes());

// What --device takes, for --help and refusals.
std::string DeviceNamesText();

}  // namespace tessera::worker
