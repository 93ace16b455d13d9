// Launch shapes of the KV codecs (kernels/cuda/kv): pure functions of the problem's extents, all of
// them 1 or more. Thread-safe.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch/launch_shape.h"

namespace tessera::kernels::cuda {

inline constexpr int kKvThreads = 128;

// A thread per unit that is copied or converted.
LaunchShape KvUnitShape(int64_t units);
// A block per group of tokens of a line; shared memory for a scale and a zero, as floats, of each
// channel of keys or of each token's chunks of values.
LaunchShape KvGroupShape(int64_t groups, int64_t head_dim);

// Scales that a block of KvGroupShape has room for.
int64_t MaxKvGroupScales(int64_t head_dim);

}  // namespace tessera::kernels::cuda
