// Linear panels with AMX. Compiled with -mavx512{f,bw,dq,vl,bf16,vbmi}.
#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/linear/avx512_convert.h"
#include "kernels/cpu/linear/nibble_panel.h"
#include "kernels/cpu/linear/tile_panel.h"
#include "kernels/cpu/linear/tile_scaled_panel.h"

namespace tessera::kernels::cpu::linear {
const KernelSet kAmxKernels = {
    .name = "amx",
    .f32 = {.run = &RunPanel<Avx512F32>, .pair_words = false, .sign_magnitude = false},
    .bf16 = {.run = &RunTilePanel<AmxTiles>,
             .pair_words = true,
             .sign_magnitude = false,
             .turn = &TurnPanel512,
             .max_panels = kMaxPanels},
    .i8 = {.run = &RunScaledTilePanel<AmxTiles>,
           .pair_words = true,
           .sign_magnitude = true,
           .max_panels = kMaxPanels},
    .bf16_keeping_f32 = {.run = &RunPanel<Avx512Bf16>,
                         .pair_words = false,
                         .sign_magnitude = false},
    .i8_keeping_f32 = {.run = &RunScaledPanel<SplitI8, Avx512F32>,
                       .pair_words = false,
                       .sign_magnitude = true},
    .i4 = {.run = &RunNibblePanel<DotI8, DotBf16, true, DotNibbles>,
           .pair_words = true,
           .sign_magnitude = true},
    .i4_keeping_f32 = {.run = &RunNibblePanel<SplitI8, Avx512F32, true, SplitNibbles>,
                       .pair_words = false,
                       .sign_magnitude = true},
    .f8 = {.run = &RunScaledPanel<DotF8, DotBf16>, .pair_words = true, .sign_magnitude = true},
    .f8_keeping_f32 = {.run = &RunScaledPanel<SplitF8, Avx512F32>,
                       .pair_words = false,
                       .sign_magnitude = true},
    .widen = &Widen512,
    .narrow = &Narrow512,
};

}  // namespace tessera::kernels::cpu::linear
