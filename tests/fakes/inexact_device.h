// A CPU device whose norms are off by about the last bit: as a rank whose kernels round them
// differently, only that the difference is certain.
// Thread rule: as the device itself. Ownership: owns the device.
#pragma once

#include <memory>

#include "kernels/device.h"

namespace tessera {

std::unique_ptr<kernels::Device> MakeInexact(std::unique_ptr<kernels::Device> device);

}  // namespace tessera
