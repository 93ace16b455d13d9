// One panel of i8 weights with AMX tiles, over a Tiles type of kernels/cpu/amx_tiles.h.
//
// Codes become bf16 exactly (dot_vectors.h), two tiles of them at a time. Tiles sum the products of
// one segment; these are scaled and added to the sums of the segments before in f32, which a row
// keeps whatever rows are computed with it. A few rows, one pass over the weights, read two tiles
// while the next two are widened; for more, weights are widened once.
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
#include "kernels/cpu/linear/tile_panel.h"

namespace tessera::kernels::cpu::linear {
namespace {

// sums += scale * products, [rows][kPanelColumns].
void AddScaled(float* sums, const float* products, const float* scales, int64_t rows) {
  const __m512 left = _mm512_loadu_ps(scales), right = _mm512_loadu_ps(scales + 16);
  for (int64_t i = 0; i < rows * kPanelColumns; i += kPanelColumns) {
    const __m512 first = _mm512_load_ps(sums + i), second = _mm512_load_ps(sums + i + 16);
    _mm512_store_ps(sums + i, _mm512_fmadd_ps(_mm512_load_ps(products + i), left, first));
    _mm512_store_ps(sums + i + 16,
                    _mm512_fmadd_ps(_mm512_load_ps(products + i + 16), right, second));
  }
}

const float* ScalesOf(const SegmentPlace& place) {
  return reinterpret_cast<const float*>(place.weights);
}

// `steps` <= kTilePairs steps of codes, padded with zeros to whole tiles; kAhead asks memory for
// the codes to come.
template <bool kAhead>
void WidenTiles(std::byte* out, const std::byte* codes, int64_t steps) {
  if (steps < kTilePairs) {
    DotI8::Widen(out, codes, steps);
    __builtin_memset(out + steps * DotBf16::kBytes, 0, (kTilePairs - steps) * DotBf16::kBytes);
    return;
  }
#pragma GCC unroll 4
  for (int64_t step = 0; step < kTilePairs; ++step) {
    if constexpr (kAhead) AskFor<1>(codes + kCodesAheadBytes);
    DotI8::Widen(out, codes, 1);
    codes += DotI8::kBytes;
    out += DotBf16::kBytes;
  }
}

// A panel's codes as bf16, two tiles at a time, in order: into `to`, or through a ring there that
// stays in the first cache. A tile is loaded only after the next ones are widened: by then its
// lines have left the store buffer.
class WideTiles {
 public:
  WideTiles(const PanelArgs& args, std::byte* to) : args_(args), to_(to), place_(PlaceOf(args, 0)) {
    Widen(to_);
  }
  const std::byte* Next() {
    const std::byte* const ready = to_ + at_;
    at_ = (at_ + kWideTileBytes) % (kTiles * kWideTileBytes);
    if (segment_ < args_.geometry->segments) Widen(to_ + at_);
    return ready;
  }

 private:
  static constexpr int64_t kTiles = 4;
  static_assert(kTiles * kWideTileBytes <= kScratchBytes);

  void Widen(std::byte* out) {
    const std::byte* codes = place_.weights + kPanelColumns * sizeof(float);
    WidenTiles<true>(out, codes + pair_ * DotI8::kBytes, place_.steps - pair_);
    pair_ += kTilePairs;
    if (pair_ < place_.steps) return;
    pair_ = 0;
    if (++segment_ == args_.geometry->segments) return;
    place_ = PlaceOf(args_, segment_);
    AskFor<2>(place_.weights + kCodesAheadBytes);  // the scales
  }

  const PanelArgs& args_;
  std::byte* const to_;
  SegmentPlace place_;
  int64_t segment_ = 0;
  int64_t pair_ = 0;
  int64_t at_ = 0;
};

// What stands wide already.
struct StandingTiles {
  const std::byte* next;
  const std::byte* Next() {
    next += kWideTileBytes;
    return next - kWideTileBytes;
  }
};

// sums += scaled products of segments [first, end), for rows [row, row + kRowsAtOnce) or as many of
// them as there are. The products of a segment are added while tiles multiply the next.
template <typename Tiles, bool kLower, typename Weights>
void MultiplyScaled(const PanelArgs& args, Weights& weights, int64_t first, int64_t end,
                    int64_t row) {
  using Sums = TileSums<Tiles, kLower>;
  alignas(64) float products[kRowsAtOnce * kPanelColumns];
  float* const sums = args.sums + row * kPanelColumns;
  const int64_t rows = args.rows - row < kRowsAtOnce ? args.rows - row : kRowsAtOnce;
  const float* scales = nullptr;  // of the products that wait
  for (int64_t segment = first; segment < end; ++segment) {
    const SegmentPlace place = PlaceOf(args, segment);
    const uint32_t* a = place.activations + row * kBlockWords;
    Sums::Zero();
    MultiplyStep<Tiles, kLower, false>(a, weights.Next());
    if (scales != nullptr) AddScaled(sums, products, scales, rows);
    for (int64_t pair = kTilePairs; pair < place.steps; pair += kTilePairs) {
      MultiplyStep<Tiles, kLower, false>(a + pair, weights.Next());
    }
    Sums::Store(products);
    scales = ScalesOf(place);
  }
  AddScaled(sums, products, scales, rows);
}

// Segments [first, end) of a panel as bf16.
void WidenSegments(const PanelArgs& args, int64_t first, int64_t end, std::byte* out) {
  for (int64_t segment = first; segment < end; ++segment) {
    const SegmentPlace place = PlaceOf(args, segment);
    const std::byte* codes = place.weights + kPanelColumns * sizeof(float);
    for (int64_t pair = 0; pair < place.steps; pair += kTilePairs) {
      WidenTiles<false>(out, codes + pair * DotI8::kBytes, place.steps - pair);
      out += kWideTileBytes;
    }
  }
}

// More than kRowsAtOnce rows.
template <typename Tiles>
void MultiplyScaledPanels(const PanelArgs& args, const PanelArgs* panels) {
  const Geometry& g = *args.geometry;
  const int64_t segment_bytes = g.segment_steps / kTilePairs * kWideTileBytes;  // wide
  const int64_t at_once = kScratchBytes / kMaxPanels / segment_bytes;
  for (int64_t first = 0; first < g.segments; first += at_once) {
    const int64_t end = first + at_once < g.segments ? first + at_once : g.segments;
    const int64_t next = end < g.segments ? end * g.segment_bytes : args.panels * g.panel_bytes;
    const auto wide = [&](int64_t panel) { return args.scratch + panel * at_once * segment_bytes; };
    for (int64_t panel = 0; panel < args.panels; ++panel) {
      WidenSegments(panels[panel], first, end, wide(panel));
    }
    ForRowBlocks<Tiles>(args.rows, [&]<bool kLower>(int64_t row) {
      for (int64_t panel = 0; panel < args.panels; ++panel) {
        AskForShare(panels[panel].weights + next, at_once * g.segment_bytes, args, row);
        StandingTiles weights{wide(panel)};
        MultiplyScaled<Tiles, kLower>(panels[panel], weights, first, end, row);
      }
    });
  }
}

template <typename Tiles>
void RunScaledTilePanel(const PanelArgs& args) {
  const Geometry& g = *args.geometry;
  PanelArgs panels[kMaxPanels];
  for (int64_t panel = 0; panel < args.panels; ++panel) panels[panel] = PanelOf(args, panel);
  // Groups that are not whole tiles would read the next group's activations.
  if (g.segment_steps % kTilePairs != 0) {
    for (int64_t panel = 0; panel < args.panels; ++panel) {
      RunScaledPanel<DotI8, DotBf16>(panels[panel]);
    }
    return;
  }
  __builtin_memset(args.sums, 0, args.panels * args.rows * kPanelColumns * sizeof(float));
  if (args.rows > kRowsAtOnce) MultiplyScaledPanels<Tiles>(args, panels);
  for (int64_t panel = 0; panel < args.panels; ++panel) {
    if (args.rows <= kRowsAtOnce) {
      WideTiles weights(panels[panel], args.scratch);
      ForRowBlocks<Tiles>(args.rows, [&]<bool kLower>(int64_t row) {
        MultiplyScaled<Tiles, kLower>(panels[panel], weights, 0, g.segments, row);
      });
    }
    WriteRows(panels[panel]);
  }
}

}  // namespace
}  // namespace tessera::kernels::cpu::linear
