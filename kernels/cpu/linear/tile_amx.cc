// Linear panels with AMX. Compiled with -mavx512{f,bw,dq,vl,bf16,vbmi}.
#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/linear/tile_kernels.h"

namespace tessera::kernels::cpu::linear {

constinit const KernelSet kAmxKernels = TileKernels<AmxTiles>("amx");

}  // namespace tessera::kernels::cpu::linear
