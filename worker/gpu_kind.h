// The catalogue's name of a GPU (deploy/devices/catalogue.yaml): the one place that knows what
// drivers call the cards. Pure, thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace tessera::worker {

// "A6000" for "NVIDIA RTX A6000". The driver's name itself where the catalogue has none, or where
// it is a slice of a card (MIG): such devices are planned with their measured rates.
std::string KindOfGpu(std::string_view name);

}  // namespace tessera::worker
