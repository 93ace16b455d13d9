// One panel of bf16 weights with AMX tiles, over a Tiles type of kernels/cpu/amx_tiles.h.
//
// Four of the tiles hold the sums of 32 rows x 32 columns, two activations, two weights. Tiles
// multiply faster than the second cache can feed them both operands, and far faster than what is
// behind it. So many rows take several panels at once, a piece of their inputs at a time: the
// panels' pieces stay in the second cache for all rows, and the activations of 32 rows and one
// segment in the first for all panels.
//
// Included by files with -m flags of their own, so everything here has internal linkage.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/linear/avx512_vectors.h"
#include "kernels/cpu/linear/panel_block.h"
#include "kernels/cpu/linear/panel_kernel.h"

namespace tessera::kernels::cpu::linear {
namespace {

// Rows that the sum tiles hold: more of them pass over the weights again.
constexpr int64_t kRowsAtOnce = 2 * kTileRows;
static_assert(kRowsAtOnce == kFewRows);
constexpr int64_t kWideTileBytes = kTilePairs * kPanelColumns * 4;  // of two tiles of weights

enum Tile : int {
  kSum = 0,
  kActivations = 4,
  kWeights = 6
};  // sums: 2 * (lower rows) + (right columns)

// For `row_count` rows, 1..kRowsAtOnce.
TileConfig ConfigFor(int64_t row_count) {
  const int64_t upper_rows = row_count < kTileRows ? row_count : kTileRows;
  const int64_t lower_rows = row_count - upper_rows;
  TileConfig config;
  const int64_t rows[8] = {upper_rows, upper_rows, lower_rows, lower_rows,
                           upper_rows, lower_rows, kTilePairs, kTilePairs};
  for (int tile = 0; tile < 8; ++tile) {
    config.rows[tile] = static_cast<uint8_t>(rows[tile]);
    config.row_bytes[tile] = rows[tile] == 0 ? 0 : 64;
  }
  return config;
}

// The sum tiles, of rows in memory kPanelColumns apart.
template <typename Tiles, bool kLower>
struct TileSums {
  static constexpr int64_t kBytes = kPanelColumns * 4;
  static void Zero() {
    Tiles::template Zero<kSum>();
    Tiles::template Zero<kSum + 1>();
    if constexpr (kLower) {
      Tiles::template Zero<kSum + 2>();
      Tiles::template Zero<kSum + 3>();
    }
  }
  static void Load(const float* sums) {
    Tiles::template Load<kSum>(sums, kBytes);
    Tiles::template Load<kSum + 1>(sums + 16, kBytes);
    if constexpr (kLower) {
      const float* lower = sums + kTileRows * kPanelColumns;
      Tiles::template Load<kSum + 2>(lower, kBytes);
      Tiles::template Load<kSum + 3>(lower + 16, kBytes);
    }
  }
  static void Store(float* sums) {
    Tiles::template Store<kSum>(sums, kBytes);
    Tiles::template Store<kSum + 1>(sums + 16, kBytes);
    if constexpr (kLower) {
      float* lower = sums + kTileRows * kPanelColumns;
      Tiles::template Store<kSum + 2>(lower, kBytes);
      Tiles::template Store<kSum + 3>(lower + 16, kBytes);
    }
  }
};

// Asks for lines of weights to come. Tiles do so little with a line that it must be on its way
// before its load; but the first cache holds the activations too, so bf16 asks no further ahead
// than it must. What is asked for further ahead, or into the second cache, comes no sooner.
constexpr int64_t kBf16AheadBytes = 1024;
constexpr int64_t kCodesAheadBytes = 2048;

template <int kLines>
void AskFor(const std::byte* weights) {
#pragma GCC unroll 8
  for (int line = 0; line < kLines; ++line) _mm_prefetch(weights + line * 64, _MM_HINT_T0);
}

// The sum tiles += the products of 16 pairs of inputs; kAhead: `w` stands outside of the first
// cache, and what comes behind is asked for, evenly between the tiles.
template <typename Tiles, bool kLower, bool kAhead>
void MultiplyStep(const uint32_t* a, const std::byte* w) {
  constexpr int64_t kRowBytes = kBlockWords * 4;
  constexpr int kLines = kAhead ? kWideTileBytes / 64 / 4 : 0;
  const std::byte* const next = w + kBf16AheadBytes;
  Tiles::template Load<kActivations>(a, kRowBytes);
  AskFor<kLines>(next);
  Tiles::template Load<kWeights>(w, kPanelColumns * 4);
  AskFor<kLines>(next + 64 * kLines);
  Tiles::template Dot<kSum, kActivations, kWeights>();
  Tiles::template Load<kWeights + 1>(w + 64, kPanelColumns * 4);
  AskFor<kLines>(next + 2 * 64 * kLines);
  Tiles::template Dot<kSum + 1, kActivations, kWeights + 1>();
  AskFor<kLines>(next + 3 * 64 * kLines);
  if constexpr (kLower) {
    Tiles::template Load<kActivations + 1>(a + kTileRows * kBlockWords, kRowBytes);
    Tiles::template Dot<kSum + 2, kActivations + 1, kWeights>();
    Tiles::template Dot<kSum + 3, kActivations + 1, kWeights + 1>();
  }
}

// Calls fn.operator()<kLower>(row) for each kRowsAtOnce rows, with the tiles configured.
template <typename Tiles, typename Fn>
void ForRowBlocks(int64_t rows, const Fn& fn) {
  for (int64_t row = 0; row < rows; row += kRowsAtOnce) {
    const int64_t count = rows - row < kRowsAtOnce ? rows - row : kRowsAtOnce;
    // The same for all but the last rows; setting it again would only clear the tiles.
    if (row == 0 || count < kRowsAtOnce) Tiles::Configure(ConfigFor(count));
    if (count > kTileRows) {
      fn.template operator()<true>(row);
    } else {
      fn.template operator()<false>(row);
    }
  }
  Tiles::Release();
}

// sums = products, for all of a few rows.
template <typename Tiles, bool kLower>
void MultiplyTiles(const PanelArgs& args, int64_t row) {
  using Sums = TileSums<Tiles, kLower>;
  Sums::Zero();
  for (int64_t segment = 0; segment < args.geometry->segments; ++segment) {
    const SegmentPlace place = PlaceOf(args, segment);
    const uint32_t* a = place.activations + row * kBlockWords;
    const std::byte* w = place.weights;
    for (int64_t pair = 0; pair < place.steps; pair += kTilePairs) {
      MultiplyStep<Tiles, kLower, true>(a, w);
      a += kTilePairs;
      w += kWideTileBytes;
    }
  }
  Sums::Store(args.sums + row * kPanelColumns);
}

// One of the panels.
PanelArgs PanelOf(const PanelArgs& args, int64_t panel) {
  const int64_t column = panel * kPanelColumns;
  PanelArgs one = args;
  one.panels = 1;
  one.weights += panel * args.geometry->panel_bytes;
  one.sums += panel * args.rows * kPanelColumns;
  one.out += column * (args.out_bf16 ? 2 : 4);
  one.columns = args.columns - column < kPanelColumns ? args.columns - column : kPanelColumns;
  if (args.bias != nullptr) one.bias += column;
  return one;
}

void WriteRows(const PanelArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    WriteRow<Avx512Vectors>(args, row, args.sums + row * kPanelColumns);
  }
}

// Asks for a share of weights that come after those which all rows are multiplied with now: each
// block of rows for its part, so that memory works all the time.
void AskForShare(const std::byte* weights, int64_t size_bytes, const PanelArgs& args, int64_t row) {
  const int64_t count = args.rows - row < kRowsAtOnce ? args.rows - row : kRowsAtOnce;
  const std::byte* const end = weights + size_bytes * (row + count) / args.rows;
  for (const std::byte* p = weights + size_bytes * row / args.rows; p < end; p += 64) {
    _mm_prefetch(p, _MM_HINT_T1);
  }
}

// A panel's share of asking for the activations that come next.
struct NextActivations {
  int64_t distance_words;  // from those of this segment
  int64_t share;
  int64_t shares;
};

// One segment: sums (+)= products, for rows [row, row + kRowsAtOnce) or as many of them as there
// are. Each step asks for its part of what comes next: lines from behind the second cache take so
// long that many at once would hold up the loads.
template <typename Tiles, bool kLower>
void MultiplySegment(const PanelArgs& args, int64_t segment, int64_t row,
                     const NextActivations& next) {
  using Sums = TileSums<Tiles, kLower>;
  constexpr int64_t kRows = kLower ? kRowsAtOnce : kTileRows;
  constexpr int64_t kLineWords = 16, kSteps = kBlockWords / kTilePairs;
  const int64_t lines = kRows * kBlockWords / kLineWords / kSteps / next.shares;  // in a step
  const SegmentPlace place = PlaceOf(args, segment);
  const uint32_t* a = place.activations + row * kBlockWords;
  const uint32_t* asked = a + next.distance_words + next.share * kSteps * lines * kLineWords;
  float* const sums = args.sums + row * kPanelColumns;
  if (segment == 0) {
    Sums::Zero();
  } else {
    Sums::Load(sums);
  }
  for (int64_t pair = 0; pair < place.steps; pair += kTilePairs) {
    for (int64_t line = 0; line < lines; ++line) {
      _mm_prefetch(asked, _MM_HINT_T1);
      asked += kLineWords;
    }
    MultiplyStep<Tiles, kLower, true>(a + pair, place.weights + pair * kPanelColumns * 4);
  }
  Sums::Store(sums);
}

// More than kRowsAtOnce rows.
template <typename Tiles>
void MultiplyPanels(const PanelArgs& args, const PanelArgs* panels) {
  constexpr int64_t kPieceSegments = 4;  // kMaxPanels panels of 1024 inputs fill 512 KB
  const Geometry& g = *args.geometry;
  for (int64_t first = 0; first < g.segments; first += kPieceSegments) {
    const int64_t end = first + kPieceSegments < g.segments ? first + kPieceSegments : g.segments;
    // From these weights to those that are multiplied in their place next.
    const int64_t ahead_bytes = end < g.segments
                                    ? (end - first) * g.segment_bytes
                                    : args.panels * g.panel_bytes - first * g.segment_bytes;
    // From the piece's last activations of these rows to its first of the next.
    const int64_t next_rows_words =
        kRowsAtOnce * kBlockWords - (end - 1 - first) * args.block_stride_words;
    ForRowBlocks<Tiles>(args.rows, [&]<bool kLower>(int64_t row) {
      for (int64_t segment = first; segment < end; ++segment) {
        const int64_t distance_words =
            segment + 1 < end ? args.block_stride_words : next_rows_words;
        for (int64_t panel = 0; panel < args.panels; ++panel) {
          AskForShare(panels[panel].weights + segment * g.segment_bytes + ahead_bytes,
                      g.segment_bytes, args, row);
          MultiplySegment<Tiles, kLower>(panels[panel], segment, row,
                                         {distance_words, panel, args.panels});
        }
      }
    });
  }
}

template <typename Tiles>
void RunTilePanel(const PanelArgs& args) {
  PanelArgs panels[kMaxPanels];
  for (int64_t panel = 0; panel < args.panels; ++panel) panels[panel] = PanelOf(args, panel);
  if (args.rows > kRowsAtOnce) MultiplyPanels<Tiles>(args, panels);
  for (int64_t panel = 0; panel < args.panels; ++panel) {
    if (args.rows <= kRowsAtOnce) {
      ForRowBlocks<Tiles>(args.rows, [&]<bool kLower>(int64_t row) {
        MultiplyTiles<Tiles, kLower>(panels[panel], row);
      });
    }
    WriteRows(panels[panel]);
  }
}

}  // namespace
}  // namespace tessera::kernels::cpu::linear
