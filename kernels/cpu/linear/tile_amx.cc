// Linear panels with AMX. Compiled with -mavx512{f,bw,dq,vl,bf16,vbmi}; the tile instructions are
// written out, because g++ 12's _tile_loadconfig tells the compiler of 8 of the configuration's 64
// bytes only, and drops the stores of the others.
#include "kernels/cpu/linear/avx512_convert.h"
#include "kernels/cpu/linear/tile_panel.h"

namespace tessera::kernels::cpu::linear {
namespace {

struct AmxTiles {
  static void Configure(const TileConfig& config) { asm volatile("ldtilecfg %0" : : "m"(config)); }
  static void Release() { asm volatile("tilerelease"); }
  template <int kTile>
  static void Load(const void* rows, int64_t stride_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
                 :
                 : "r"(rows), "r"(stride_bytes), "i"(kTile)
                 : "memory");
  }
  template <int kTile>
  static void Store(void* rows, int64_t stride_bytes) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
                 :
                 : "r"(rows), "r"(stride_bytes), "i"(kTile)
                 : "memory");
  }
  template <int kSums, int kLeft, int kRight>
  static void Dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kLeft), "i"(kRight));
  }
};

}  // namespace

const KernelSet kAmxKernels = {
    .name = "amx",
    .f32 = {.run = &RunPanel<Avx512F32>, .pair_words = false, .sign_magnitude = false},
    .bf16 = {.run = &RunTilePanel<AmxTiles>,
             .pair_words = true,
             .sign_magnitude = false,
             .turn = &TurnPanel512},
    .i8 = {.run = &RunScaledTilePanel<AmxTiles>, .pair_words = true, .sign_magnitude = true},
    .bf16_keeping_f32 = {.run = &RunPanel<Avx512Bf16>,
                         .pair_words = false,
                         .sign_magnitude = false},
    .i8_keeping_f32 = {.run = &RunScaledPanel<SplitI8, Avx512F32>,
                       .pair_words = false,
                       .sign_magnitude = true},
    .widen = &Widen512,
    .narrow = &Narrow512,
};

}  // namespace tessera::kernels::cpu::linear
