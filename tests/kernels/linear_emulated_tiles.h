// The AMX kernels with their tile instructions emulated (linear_emulated_tiles.cc). Runs where
// AVX512_BF16 and AVX512_VBMI are.
#pragma once

#include "kernels/cpu/linear/panel_kernel.h"

namespace tessera::kernels::cpu::linear {

extern const KernelSet kEmulatedTileKernels;

}  // namespace tessera::kernels::cpu::linear
