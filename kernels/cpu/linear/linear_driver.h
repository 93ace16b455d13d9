// Runs a linear, or one per expert, with a given set of kernels: brings rows of activations into
// the words that the kernels read, then hands out panels to the pool's threads. Rows go in chunks
// of kMaxChunkRows, so that the workspace is bounded. Thread rule and checks: packed_linear.h.
#pragma once

#include <cstdint>

#include "kernels/cpu/linear/panel_kernel.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace tessera::kernels::cpu::linear {

// Activation words of a chunk; then a panel for each thread, where weights that are not packed yet
// become one, or the chunk's sums of activations.
int64_t DriverWorkspaceBytes(const KernelSet& kernels, const LinearSpec& spec, int64_t rows,
                             int threads);
void DriveLinear(const KernelSet& kernels, const LinearArgs& args, ThreadPool& pool);
void DriveGroupedLinear(const KernelSet& kernels, const GroupedLinearArgs& args, ThreadPool& pool);

}  // namespace tessera::kernels::cpu::linear
