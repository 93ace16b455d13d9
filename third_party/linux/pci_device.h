// What the kernel says of a PCI device. Thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// The cores of the NUMA node that a device hangs on, ascending, from sysfs; empty where it does not
// say. `bus_id`: "0000:41:00.0", in any case. `root` is "/" but in tests.
std::vector<int> CoresNearPciDevice(std::string_view bus_id, const std::string& root = "/");

}  // namespace tessera
