// A share of this machine's processor as a worker's device. Thread rule: see DeviceType.
#pragma once

#include "worker/devices/device_type.h"

namespace tessera::worker {

extern const DeviceType kCpuDevices;

}  // namespace tessera::worker
