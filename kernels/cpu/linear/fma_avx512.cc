// Linear panels with AVX-512 and f32 activations. Compiled with -mavx512f -mavx512bw -mavx512dq
// -mavx512vl.
#include "kernels/cpu/linear/avx512_convert.h"
#include "kernels/cpu/linear/avx512_vectors.h"
#include "kernels/cpu/linear/nibble_panel.h"
#include "kernels/cpu/linear/panel_block.h"

namespace tessera::kernels::cpu::linear {

const KernelSet kAvx512Kernels = {
    .name = "avx512",
    .f32 = {.run = &RunPanel<Avx512F32>, .pair_words = false, .sign_magnitude = false},
    .bf16 = {.run = &RunPanel<Avx512Bf16>,
             .pair_words = false,
             .sign_magnitude = false,
             .turn = &TurnPanel512},
    .i8 = {.run = &RunScaledPanel<Avx512I8, Avx512F32>,
           .pair_words = false,
           .sign_magnitude = false},
    .bf16_keeping_f32 = {.run = &RunPanel<Avx512Bf16>,
                         .pair_words = false,
                         .sign_magnitude = false},
    .i8_keeping_f32 = {.run = &RunScaledPanel<Avx512I8, Avx512F32>,
                       .pair_words = false,
                       .sign_magnitude = false},
    .i4 = {.run = &RunNibblePanel<Avx512I8, Avx512F32, false, Avx512Nibbles>,
           .pair_words = false,
           .sign_magnitude = false},
    .i4_keeping_f32 = {.run = &RunNibblePanel<Avx512I8, Avx512F32, false, Avx512Nibbles>,
                       .pair_words = false,
                       .sign_magnitude = false},
    .f8 = {.run = &RunScaledPanel<Avx512F8, Avx512F32>,
           .pair_words = false,
           .sign_magnitude = false},
    .f8_keeping_f32 = {.run = &RunScaledPanel<Avx512F8, Avx512F32>,
                       .pair_words = false,
                       .sign_magnitude = false},
    .widen = &Widen512,
    .narrow = &Narrow512,
};

}  // namespace tessera::kernels::cpu::linear
