// A device that has memory but computes nothing: what is allocated of it is counted, and only what
// is written takes memory of the machine.
//
// Thread rule and ownership as in kernels/device.h. Streams and ops are those of one core's
// reference kernels, which nothing but questions about types asks for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace tessera::worker {

// `kind` is for Describe.
absl::StatusOr<std::unique_ptr<kernels::Device>> CreateEmulatedDevice(const std::string& kind,
                                                                      int64_t memory_bytes);

}  // namespace tessera::worker
