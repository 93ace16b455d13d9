#include "tests/kernels/linear_emulated_tiles.h"

#include "kernels/cpu/linear/tile_kernels.h"
#include "tests/kernels/emulated_tiles.h"

namespace tessera::kernels::cpu::linear {

constinit const KernelSet kEmulatedTileKernels = TileKernels<EmulatedTiles>("amx (emulated tiles)");

}  // namespace tessera::kernels::cpu::linear
