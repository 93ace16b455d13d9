// The kernels over AVX512_BF16, which sets with tiles have too, but for what they multiply with
// tiles.
//
// Included by files with -m flags of their own, so everything here has internal linkage.
#pragma once

#include "kernels/cpu/linear/avx512_convert.h"
#include "kernels/cpu/linear/dot_vectors.h"
#include "kernels/cpu/linear/nibble_panel.h"
#include "kernels/cpu/linear/panel_block.h"

namespace tessera::kernels::cpu::linear {
namespace {

constexpr KernelSet DotKernels(const char* name) {
  return {
      .name = name,
      .f32 = {.run = &RunPanel<Avx512F32>, .pair_words = false, .sign_magnitude = false},
      .bf16 = {.run = &RunPanel<DotBf16>,
               .pair_words = true,
               .sign_magnitude = false,
               .turn = &TurnPanel512},
      .i8 = {.run = &RunScaledPanel<DotI8, DotBf16>, .pair_words = true, .sign_magnitude = true},
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
}

}  // namespace
}  // namespace tessera::kernels::cpu::linear
