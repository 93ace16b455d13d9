// The kernels over tiles of a Tiles type (kernels/cpu/amx_tiles.h).
//
// Included by files with -m flags of their own, so everything here has internal linkage.
#pragma once

#include "kernels/cpu/linear/dot_kernels.h"
#include "kernels/cpu/linear/tile_panel.h"
#include "kernels/cpu/linear/tile_scaled_panel.h"

namespace tessera::kernels::cpu::linear {
namespace {

template <typename Tiles>
constexpr KernelSet TileKernels(const char* name) {
  KernelSet kernels = DotKernels(name);
  kernels.bf16.run = &RunTilePanel<Tiles>;
  kernels.bf16.max_panels = kMaxPanels;
  kernels.i8.run = &RunCodesTilePanel<Tiles, ByteCodes<DotI8>, &RunScaledPanel<DotI8, DotBf16>>;
  kernels.f8.run = &RunCodesTilePanel<Tiles, ByteCodes<DotF8>, &RunScaledPanel<DotF8, DotBf16>>;
  kernels.i4.run = &RunNibbleTilePanel<Tiles>;
  for (Kernel* codes : {&kernels.i8, &kernels.f8, &kernels.i4}) codes->max_panels = kMaxPanels;
  return kernels;
}

}  // namespace
}  // namespace tessera::kernels::cpu::linear
