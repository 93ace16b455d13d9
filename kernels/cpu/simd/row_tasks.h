// Spreading rows over the pool, and choosing a kernel by element type.
#pragma once

#include <cstddef>

#include "kernels/cpu/thread_pool.h"
#include "kernels/half_floats.h"
#include "kernels/tensor.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {
namespace {

// Below this many elements a task costs less than handing it to another core.
constexpr int64_t kElementsPerTask = 16384;

// Runs fn(row) for each row; rows of `elements` each go to the pool's members in runs.
template <typename Fn>
void ForRows(ThreadPool& pool, int64_t rows, int64_t elements, const Fn& fn) {
  const int64_t wanted = rows * elements / kElementsPerTask;
  const int64_t most = rows < 4 * pool.threads() ? rows : 4 * pool.threads();
  const int64_t tasks = wanted < 1 ? 1 : wanted > most ? most : wanted;
  if (rows <= 0) return;
  pool.ParallelFor(tasks, [&](int64_t task, int) {
    for (int64_t row = rows * task / tasks; row < rows * (task + 1) / tasks; ++row) fn(row);
  });
}

// Asks for what stands one page further on: rows mostly follow one another, and the processor reads
// ahead by itself only up to the end of a page.
[[gnu::always_inline]] inline void AskAhead(const void* place) {
  __builtin_prefetch(static_cast<const std::byte*>(place) + 4096);
}

// Calls fn with a value of the tensor's element type.
template <typename Fn>
void WithType(DType dtype, const Fn& fn) {
  if (dtype == DType::kBF16) {
    fn(BFloat16{});
  } else if (dtype == DType::kF16) {
    fn(Float16{});
  } else {
    fn(float{});
  }
}

// The same for activations, which are never f16.
template <typename Fn>
void WithActivationType(DType dtype, const Fn& fn) {
  if (dtype == DType::kBF16) {
    fn(BFloat16{});
  } else {
    fn(float{});
  }
}

}  // namespace
}  // namespace tessera::kernels::TESSERA_SIMD_PATH
