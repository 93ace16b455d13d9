// The rate of arithmetic that products of bf16 weights are held against: multiply-adds in
// registers, with the widest instruction for them that the vector units have (AMX left aside).
// Thread rule: one thread at a time, which takes part in the pool's work.
#pragma once

#include <cstdint>

#include "kernels/cpu/thread_pool.h"

namespace tessera::bench {

// Seconds that all threads of the pool need for `products` multiply-adds together.
double MultiplySeconds(int64_t products, kernels::ThreadPool& pool);

}  // namespace tessera::bench
