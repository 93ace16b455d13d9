// The bandwidth that weights are held against: memory read once, and nothing else done with it.
// Thread rule: one thread at a time, which takes part in the pool's work.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/thread_pool.h"

namespace tessera::bench {

// Seconds of summing `size_bytes` (a multiple of 1 MiB) with the widest loads the processor has.
double ReadSeconds(const std::byte* memory, int64_t size_bytes, kernels::ThreadPool& pool);

}  // namespace tessera::bench
