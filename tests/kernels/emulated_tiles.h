// The tiles of kernels/cpu/amx_tiles.h without AMX.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "kernels/cpu/amx_tiles.h"

namespace tessera::kernels::cpu {
namespace {

// Tiles as the manual describes them: shapes come from the configuration, using a tile that has
// none or shapes that do not fit is an invalid-opcode fault (here: abort), bf16 products are summed
// in f32.
struct EmulatedTiles {
  struct State {
    bool configured = false;
    TileConfig config;
    alignas(64) std::byte rows[8][16][64];
  };
  static State& Get() {
    static thread_local State state;
    return state;
  }
  static void Require(bool holds) {
    if (!holds) std::abort();
  }
  static void RequireTile(const State& s, int tile) {
    Require(s.configured && s.config.palette == 1 && s.config.rows[tile] >= 1 &&
            s.config.rows[tile] <= 16 && s.config.row_bytes[tile] >= 1 &&
            s.config.row_bytes[tile] <= 64);
  }

  static void Configure(const TileConfig& config) {
    State& s = Get();
    s.configured = true;
    s.config = config;
    __builtin_memset(s.rows, 0, sizeof(s.rows));
  }
  static void Release() { Get().configured = false; }

  template <int kTile>
  static void Zero() {
    State& s = Get();
    RequireTile(s, kTile);
    __builtin_memset(s.rows[kTile], 0, sizeof(s.rows[kTile]));
  }

  template <int kTile>
  static void Load(const void* from, int64_t stride_bytes) {
    State& s = Get();
    RequireTile(s, kTile);
    __builtin_memset(s.rows[kTile], 0, sizeof(s.rows[kTile]));
    for (int row = 0; row < s.config.rows[kTile]; ++row) {
      __builtin_memcpy(s.rows[kTile][row], static_cast<const std::byte*>(from) + row * stride_bytes,
                       s.config.row_bytes[kTile]);
    }
  }

  template <int kTile>
  static void Store(void* to, int64_t stride_bytes) {
    State& s = Get();
    RequireTile(s, kTile);
    for (int row = 0; row < s.config.rows[kTile]; ++row) {
      __builtin_memcpy(static_cast<std::byte*>(to) + row * stride_bytes, s.rows[kTile][row],
                       s.config.row_bytes[kTile]);
    }
  }

  static float Bf16At(const std::byte* row, int index) {
    uint16_t half;
    __builtin_memcpy(&half, row + 2 * index, sizeof(half));
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    float value;
    __builtin_memcpy(&value, &bits, sizeof(value));
    return value;
  }

  template <int kSums, int kLeft, int kRight>
  static void Dot() {
    State& s = Get();
    RequireTile(s, kSums);
    RequireTile(s, kLeft);
    RequireTile(s, kRight);
    Require(s.config.rows[kSums] == s.config.rows[kLeft]);
    Require(s.config.row_bytes[kSums] == s.config.row_bytes[kRight]);
    Require(s.config.row_bytes[kLeft] == 4 * s.config.rows[kRight]);
    for (int m = 0; m < s.config.rows[kSums]; ++m) {
      float sums[16];
      __builtin_memcpy(sums, s.rows[kSums][m], sizeof(sums));
      for (int k = 0; k < s.config.rows[kRight]; ++k) {
        for (int n = 0; n < s.config.row_bytes[kSums] / 4; ++n) {
          for (int half = 0; half < 2; ++half) {
            sums[n] +=
                Bf16At(s.rows[kLeft][m], 2 * k + half) * Bf16At(s.rows[kRight][k], 2 * n + half);
          }
        }
      }
      __builtin_memcpy(s.rows[kSums][m], sums, sizeof(sums));
    }
  }
};

}  // namespace
}  // namespace tessera::kernels::cpu
