// How fast a GPU copies within its memory, by NVIDIA's own copy: what its memory really gives.
//
// Thread rule: one thread, while nothing else runs on the device. Errors are CUDA's.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace tessera::kernels::cuda {

// Bytes per second, those read and those written together, of copies of `size_bytes`; the best of
// a few runs. `index` as the runtime counts devices; the emulator has one.
namespace emulated {
absl::StatusOr<double> CopyRate(int index, int64_t size_bytes);
}
namespace gpu {
absl::StatusOr<double> CopyRate(int index, int64_t size_bytes);
}

}  // namespace tessera::kernels::cuda
