// The catalogue's name of a GPU (deploy/devices/catalogue.yaml): the one place that knows what
// drivers call the cards. Pure, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::worker {

// "A6000" for "NVIDIA RTX A6000". Cards of one name with several amounts of memory are
// distinguished by `memory_bytes`, what the driver reports. The driver's name itself where the
// catalogue has none, for a laptop's chip, or where it is a slice of a card (MIG): such devices are
// planned with their measured rates.
std::string KindOfGpu(std::string_view name, int64_t memory_bytes);

}  // namespace tessera::worker
