// What `tessera-worker --list-devices` prints: the cards that a worker could use, or why there are
// none.
//
// Thread rule: ListDevices as DeviceType, and MeasureListed, which takes seconds for each card; it
// must not serve meanwhile. The others are pure.
#pragma once

#include <span>
#include <string>

#include "proto/coordinator.pb.h"
#include "worker/device_types.h"

namespace tessera::worker {

v1::DeviceList ListDevices();

// For `tessera plan init`, where the catalogue does not know a card: fills in the measured rates of
// every device without a problem. One that cannot be opened or measured has the reason as its
// problem afterwards.
void MeasureListed(std::span<const DeviceType* const> types, v1::DeviceList* list);

// A table for people; the CPU and the emulator, which are always there, are named below it.
std::string DeviceListText(const v1::DeviceList& list);
std::string DeviceListJson(const v1::DeviceList& list);

}  // namespace tessera::worker
