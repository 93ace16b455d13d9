// One panel of a linear with AMX tiles, over a Tiles type of kernels/cpu/amx_tiles.h.
//
// Four of the tiles hold the sums of 32 rows x 32 columns, two activations, two weights. i8
// weights: a few rows go through the byte tables of dot_vectors.h; for more, weights
// are widened once per panel to scale * code rounded to bf16, a relative error of at most 2^-9 a
// weight: tiles cannot be scaled by group on the way. So here a row's bits may depend on how many
// rows are computed with it.
//
// Included by files with -m flags of their own, so everything here has internal linkage.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/linear/dot_vectors.h"
#include "kernels/cpu/linear/panel_block.h"
#include "kernels/cpu/linear/panel_kernel.h"

namespace tessera::kernels::cpu::linear {
namespace {

enum Tile : int {
  kSum = 0,
  kActivations = 4,
  kWeights = 6
};  // sums: 2 * (lower rows) + (right columns)

TileConfig ConfigFor(int64_t upper_rows, int64_t lower_rows) {
  TileConfig config;
  const int64_t rows[8] = {upper_rows, upper_rows, lower_rows, lower_rows,
                           upper_rows, lower_rows, kTilePairs, kTilePairs};
  for (int tile = 0; tile < 8; ++tile) {
    config.rows[tile] = static_cast<uint8_t>(rows[tile]);
    config.row_bytes[tile] = rows[tile] == 0 ? 0 : 64;
  }
  return config;
}

// Segments [first, end) of a panel, whose weights stand `stride` bytes apart as bf16 pairs.
struct TileWeights {
  const std::byte* data;
  int64_t stride;
  int64_t first;
  int64_t end;
};

// sums += products, for rows [row, row + 32) or as many of them as there are.
template <typename Tiles, bool kLower>
void MultiplyTiles(const PanelArgs& args, const TileWeights& weights, int64_t row) {
  constexpr int64_t kRowBytes = kBlockWords * 4, kSumBytes = kPanelColumns * 4;
  float* sums = args.sums + row * kPanelColumns;
  float* lower_sums = sums + kTileRows * kPanelColumns;
  Tiles::template Load<kSum>(sums, kSumBytes);
  Tiles::template Load<kSum + 1>(sums + 16, kSumBytes);
  if constexpr (kLower) {
    Tiles::template Load<kSum + 2>(lower_sums, kSumBytes);
    Tiles::template Load<kSum + 3>(lower_sums + 16, kSumBytes);
  }
  for (int64_t segment = weights.first; segment < weights.end; ++segment) {
    const SegmentPlace place = PlaceOf(args, segment);
    const uint32_t* a = place.activations + row * kBlockWords;
    const std::byte* w = weights.data + (segment - weights.first) * weights.stride;
    for (int64_t pair = 0; pair < place.steps; pair += kTilePairs) {
      Tiles::template Load<kWeights>(w, kPanelColumns * 4);
      Tiles::template Load<kWeights + 1>(w + 64, kPanelColumns * 4);
      Tiles::template Load<kActivations>(a, kRowBytes);
      Tiles::template Dot<kSum, kActivations, kWeights>();
      Tiles::template Dot<kSum + 1, kActivations, kWeights + 1>();
      if constexpr (kLower) {
        Tiles::template Load<kActivations + 1>(a + kTileRows * kBlockWords, kRowBytes);
        Tiles::template Dot<kSum + 2, kActivations + 1, kWeights>();
        Tiles::template Dot<kSum + 3, kActivations + 1, kWeights + 1>();
      }
      a += kTilePairs;
      w += kTilePairs * kPanelColumns * 4;
    }
  }
  Tiles::template Store<kSum>(sums, kSumBytes);
  Tiles::template Store<kSum + 1>(sums + 16, kSumBytes);
  if constexpr (kLower) {
    Tiles::template Store<kSum + 2>(lower_sums, kSumBytes);
    Tiles::template Store<kSum + 3>(lower_sums + 16, kSumBytes);
  }
}

template <typename Tiles>
void MultiplyAllRows(const PanelArgs& args, const TileWeights& weights) {
  for (int64_t row = 0; row < args.rows; row += 2 * kTileRows) {
    const int64_t left = args.rows - row;
    const int64_t upper = left < kTileRows ? left : kTileRows;
    const int64_t lower = left - upper < kTileRows ? left - upper : kTileRows;
    // The same for all but the last rows; setting it again would only clear the tiles.
    if (row == 0 || lower < kTileRows) Tiles::Configure(ConfigFor(upper, lower));
    if (lower > 0) {
      MultiplyTiles<Tiles, true>(args, weights, row);
    } else {
      MultiplyTiles<Tiles, false>(args, weights, row);
    }
  }
}

template <typename Tiles>
void RunTilePanel(const PanelArgs& args) {
  __builtin_memset(args.sums, 0, args.rows * kPanelColumns * sizeof(float));
  const Geometry& g = *args.geometry;
  MultiplyAllRows<Tiles>(args, {args.weights, g.segment_bytes, 0, g.segments});
  Tiles::Release();
  for (int64_t row = 0; row < args.rows; ++row) {
    WriteRow<Avx512Vectors>(args, row, args.sums + row * kPanelColumns);
  }
}

// Pairs of bf16 times a scale per column, rounded to nearest.
__m512i ScalePairs(__m512i pairs, __m512 scales) {
  const __m512i upper_half = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  const __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
  const __m512 odd = _mm512_castsi512_ps(_mm512_and_si512(pairs, upper_half));
  const __m512i half = _mm512_set1_epi32(0x8000);
  const __m512i even_bits =
      _mm512_add_epi32(_mm512_castps_si512(_mm512_mul_ps(even, scales)), half);
  const __m512i odd_bits = _mm512_add_epi32(_mm512_castps_si512(_mm512_mul_ps(odd, scales)), half);
  return _mm512_or_si512(_mm512_srli_epi32(even_bits, 16), _mm512_and_si512(odd_bits, upper_half));
}

// One i8 segment as scaled bf16, padded with zeros to whole tiles.
void WidenScaled(std::byte* out, const SegmentPlace& segment) {
  const float* scales = reinterpret_cast<const float*>(segment.weights);
  const std::byte* codes = segment.weights + kPanelColumns * sizeof(float);
  const __m512 left = _mm512_loadu_ps(scales), right = _mm512_loadu_ps(scales + 16);
  int64_t step = 0;
  for (; step < segment.steps; ++step) {
    __m512i pairs[2];
    DotI8::Load(codes + step * DotI8::kBytes, 0, pairs);
    _mm512_store_si512(out + step * 128, ScalePairs(pairs[0], left));
    _mm512_store_si512(out + step * 128 + 64, ScalePairs(pairs[1], right));
  }
  for (; step % kTilePairs != 0; ++step) __builtin_memset(out + step * 128, 0, 128);
}

template <typename Tiles>
void RunScaledTilePanel(const PanelArgs& args) {
  const Geometry& g = *args.geometry;
  // Groups that are not whole tiles would read the next group's activations.
  if (args.rows <= DotI8::kMaxRows || g.segment_steps % kTilePairs != 0) {
    RunScaledPanel<DotI8, DotBf16>(args);
    return;
  }
  __builtin_memset(args.sums, 0, args.rows * kPanelColumns * sizeof(float));
  const int64_t stride = g.segment_steps * kPanelColumns * 4;
  const int64_t at_once = kScratchBytes / stride;
  for (int64_t first = 0; first < g.segments; first += at_once) {
    const int64_t end = first + at_once < g.segments ? first + at_once : g.segments;
    for (int64_t segment = first; segment < end; ++segment) {
      WidenScaled(args.scratch + (segment - first) * stride, PlaceOf(args, segment));
    }
    MultiplyAllRows<Tiles>(args, {args.scratch, stride, first, end});
  }
  Tiles::Release();
  for (int64_t row = 0; row < args.rows; ++row) {
    WriteRow<Avx512Vectors>(args, row, args.sums + row * kPanelColumns);
  }
}

}  // namespace
}  // namespace tessera::kernels::cpu::linear
