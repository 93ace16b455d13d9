// The tiles of AMX as a type, so that loops over them can be proved where there is no AMX: over an
// emulation of the same shape (tests/kernels/emulated_tiles.h).
//
// Eight tiles of up to 16 rows x 64 bytes. Dot adds to 16 x 16 sums the products of 16 rows and 16
// columns of 16 pairs of bf16 each: the left tile holds rows, the right one [pair][column][2]
// (Intel SDM vol. 2, TDPBF16PS). A thread configures its tiles before it uses them, and releases
// them so that the system need not keep them. The instructions are written out, because g++ 12's
// _tile_loadconfig tells the compiler of 8 of the configuration's 64 bytes only, and drops the
// stores of the others.
//
// For files compiled for different instruction sets: everything has internal linkage.
#pragma once

#include <cstdint>

namespace tessera::kernels::cpu {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTilePairs = 16;

// The memory operand of LDTILECFG.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

struct AmxTiles {
  static void Configure(const TileConfig& config) { asm volatile("ldtilecfg %0" : : "m"(config)); }
  static void Release() { asm volatile("tilerelease"); }
  template <int kTile>
  static void Zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
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
}  // namespace tessera::kernels::cpu
