// Devices that are no cards, by the name that --device of tessera-worker, --devices of `tessera up`
// and the kinds of clusters share. Any other device is a card of this machine: MAKER:INDEX or
// MAKER:UUID, as tessera-worker --list-devices names it. Thread rule: pure functions.
#pragma once

#include <string_view>

namespace tessera {

inline constexpr std::string_view kCpuDevice = "cpu";
// The GPU's kernels on an emulator: very slow, for tests.
inline constexpr std::string_view kEmulatedGpuDevice = "cuda-emulated";

constexpr bool IsCardName(std::string_view device) { return device.find(':') != device.npos; }

}  // namespace tessera
