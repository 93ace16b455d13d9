// Panels of f8, i8 and i4 weights with AMX tiles, over a Tiles type of kernels/cpu/amx_tiles.h.
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
#include "kernels/cpu/linear/nibble_panel.h"
#include "kernels/cpu/linear/offset_panel.h"
#include "kernels/cpu/linear/panel_block.h"
#include "kernels/cpu/linear/panel_kernel.h"
#include "kernels/cpu/linear/tile_panel.h"

namespace tessera::kernels::cpu::linear {
namespace {

// What the products of a segment are: sums += offset * the sum of its activations, where weights
// have offsets, then += scale * products.
struct SegmentTerms {
  alignas(64) float scales[kPanelColumns];
  alignas(64) float offsets[kPanelColumns];
};

// sums of `rows` rows, [rows][kPanelColumns]. `input_sums`: of the rows' activations in the
// segment.
template <bool kOffsets>
void AddTerms(float* sums, const float* products, const SegmentTerms& terms,
              const float* input_sums, int64_t rows) {
#pragma GCC unroll 2
  for (int64_t half = 0; half < kPanelColumns; half += 16) {
    const __m512 scale = _mm512_load_ps(terms.scales + half);
    const __m512 offset = kOffsets ? _mm512_load_ps(terms.offsets + half) : _mm512_setzero_ps();
    for (int64_t row = 0; row < rows; ++row) {
      float* const place = sums + row * kPanelColumns + half;
      __m512 sum = _mm512_load_ps(place);
      if constexpr (kOffsets) sum = _mm512_fmadd_ps(offset, _mm512_set1_ps(input_sums[row]), sum);
      const __m512 product = _mm512_load_ps(products + row * kPanelColumns + half);
      _mm512_store_ps(place, _mm512_fmadd_ps(product, scale, sum));
    }
  }
}

// `pairs` <= kTilePairs pairs of codes, padded with zeros to two whole tiles; kAhead asks memory
// for the codes to come.
template <typename Step, bool kAhead>
void WidenTiles(std::byte* out, const std::byte* codes, int64_t pairs) {
  if (pairs < kTilePairs) {
    Step::Widen(out, codes, pairs / Step::kWords);
    __builtin_memset(out + pairs * DotBf16::kBytes, 0, (kTilePairs - pairs) * DotBf16::kBytes);
    return;
  }
#pragma GCC unroll 4
  for (int64_t step = 0; step < kTilePairs / Step::kWords; ++step) {
    if constexpr (kAhead) AskFor<(Step::kBytes + 63) / 64>(codes + kCodesAheadBytes);
    Step::Widen(out, codes, 1);
    codes += Step::kBytes;
    out += Step::kWords * DotBf16::kBytes;
  }
}

// The codes of a panel, in their order: a segment begins, then come its tiles. i8 and f8:
template <typename Step>
class ByteCodes {
 public:
  static constexpr bool kOffsets = false;
  void Begin(const PanelArgs& args) { args_ = &args; }
  void BeginSegment(int64_t segment, SegmentTerms* terms) {
    const SegmentPlace place = PlaceOf(*args_, segment);
    AskFor<2>(place.weights + kCodesAheadBytes);
    __builtin_memcpy(terms->scales, place.weights, sizeof(terms->scales));
    codes_ = place.weights + sizeof(terms->scales);
    pairs_ = place.steps;
  }
  template <bool kAhead>
  void Widen(std::byte* out) {
    const int64_t pairs = pairs_ < kTilePairs ? pairs_ : kTilePairs;
    WidenTiles<Step, kAhead>(out, codes_, pairs);
    codes_ += pairs / Step::kWords * Step::kBytes;
    pairs_ -= pairs;
  }

 private:
  const PanelArgs* args_;
  const std::byte* codes_;
  int64_t pairs_;  // that are left of the segment
};

// bf16 numbers that a byte's low six bits stand for in two's complement, high or low bytes.
struct SignedTable {
  uint8_t bytes[64];
};

constexpr SignedTable MakeSignedTable(int shift) {
  SignedTable table{};
  for (int value = -31; value < 32; ++value) {
    const int magnitude = value < 0 ? -value : value;
    const MagnitudeTable& halves = shift == 0 ? kLowBytes : kHighBytes;
    const int sign = value < 0 && shift != 0 ? 0x80 : 0;
    table.bytes[value & 63] = static_cast<uint8_t>(halves.bytes[magnitude] | sign);
  }
  return table;
}

alignas(64) constexpr SignedTable kSignedHighBytes = MakeSignedTable(8);
alignas(64) constexpr SignedTable kSignedLowBytes = MakeSignedTable(0);

// i4 without offsets.
class NibbleCodes {
 public:
  static constexpr bool kOffsets = false;
  void Begin(const PanelArgs& args) { args_ = &args; }
  void BeginSegment(int64_t segment, SegmentTerms* terms) {
    const SegmentPlace place = PlaceOf(*args_, segment);
    AskFor<2>(place.weights + kCodesAheadBytes);
    alignas(64) uint8_t zeros[kCodeStepBytes];
    ReadWords<true>(place.weights, terms->scales, zeros);
    zeros_ = _mm512_load_si512(zeros);
    codes_ = place.weights + kScaleBytes;
    pairs_ = place.steps;
  }
  template <bool kAhead>
  void Widen(std::byte* out) {
    const int64_t pairs = pairs_ < kTilePairs ? pairs_ : kTilePairs;
    const __m512i high_bytes = _mm512_load_si512(kSignedHighBytes.bytes);
    const __m512i low_bytes = _mm512_load_si512(kSignedLowBytes.bytes);
    for (int64_t pair = 0; pair < pairs; ++pair) {
      if (kAhead && pair % 2 == 0) AskFor<1>(codes_ + kCodesAheadBytes);
      // A byte's codes side by side.
      const __m512i bytes =
          _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes_)));
      const __m512i codes = _mm512_and_si512(_mm512_or_si512(bytes, _mm512_slli_epi16(bytes, 4)),
                                             _mm512_set1_epi8(0xf));
      const __m512i values = _mm512_sub_epi8(codes, zeros_);
      const __m512i high = _mm512_permutexvar_epi8(values, high_bytes);
      const __m512i low = _mm512_permutexvar_epi8(values, low_bytes);
      _mm512_store_si512(out, _mm512_unpacklo_epi8(low, high));
      _mm512_store_si512(out + 64, _mm512_unpackhi_epi8(low, high));
      codes_ += kNibbleStepBytes;
      out += DotBf16::kBytes;
    }
    __builtin_memset(out, 0, (kTilePairs - pairs) * DotBf16::kBytes);
    pairs_ -= pairs;
  }

 private:
  const PanelArgs* args_;
  const std::byte* codes_;
  __m512i zeros_;
  int64_t pairs_;  // that are left of the segment
};

// i4 with offsets.
class OffsetCodes {
 public:
  static constexpr bool kOffsets = true;
  void Begin(const PanelArgs& args) {
    args_ = &args;
    segments_.Begin(args);
  }
  void BeginSegment(int64_t segment, SegmentTerms* terms) {
    pairs_ = PlaceOf(*args_, segment).steps;
    codes_ = segments_.Next(segment, pairs_ * kPanelColumns);
    __builtin_memcpy(terms->scales, segments_.scales(), sizeof(terms->scales));
    __builtin_memcpy(terms->offsets, segments_.offsets(), sizeof(terms->offsets));
  }
  template <bool kAhead>
  void Widen(std::byte* out) {
    const int64_t pairs = pairs_ < kTilePairs ? pairs_ : kTilePairs;
    WidenTiles<DotNibbles, kAhead>(out, codes_, pairs);
    codes_ += pairs * kPanelColumns;
    pairs_ -= pairs;
  }

 private:
  const PanelArgs* args_;
  const std::byte* codes_;
  int64_t pairs_;  // that are left of the segment
  OffsetSegments<Avx512Vectors> segments_;
};

// A panel's tiles, two at a time, through a ring that stays in the first cache. A tile is loaded
// only after the next ones are widened: by then its lines have left the store buffer.
template <typename Codes>
class WideTiles {
 public:
  WideTiles(const PanelArgs& args, std::byte* ring) : args_(args), ring_(ring) {
    codes_.Begin(args);
    Widen(ring_);
  }
  const std::byte* Next() {
    const std::byte* const ready = ring_ + at_;
    at_ = (at_ + kWideTileBytes) % (kTiles * kWideTileBytes);
    if (segment_ < args_.geometry->segments) Widen(ring_ + at_);
    return ready;
  }
  // The terms of a segment whose tiles were the last, or the last but one.
  const SegmentTerms& terms(int64_t segment) const { return terms_[segment % kTiles]; }

 private:
  static constexpr int64_t kTiles = 4;
  static_assert(kTiles * kWideTileBytes <= kScratchBytes);

  void Widen(std::byte* out) {
    if (left_ == 0) {
      left_ = PlaceOf(args_, segment_).steps;
      codes_.BeginSegment(segment_, &terms_[segment_ % kTiles]);
    }
    codes_.template Widen<true>(out);
    left_ = left_ < kTilePairs ? 0 : left_ - kTilePairs;
    if (left_ == 0) ++segment_;
  }

  const PanelArgs& args_;
  std::byte* const ring_;
  int64_t segment_ = 0;
  int64_t left_ = 0;  // pairs of the segment
  int64_t at_ = 0;
  Codes codes_;
  SegmentTerms terms_[kTiles];
};

// What stands wide already, from a segment on.
struct StandingTiles {
  const std::byte* next;
  const SegmentTerms* first_terms;
  int64_t first;

  const std::byte* Next() {
    next += kWideTileBytes;
    return next - kWideTileBytes;
  }
  const SegmentTerms& terms(int64_t segment) const { return first_terms[segment - first]; }
};

// sums += the products of segments [first, end), for rows [row, row + kRowsAtOnce) or as many of
// them as there are. The products of a segment are added while tiles multiply the next.
template <typename Tiles, bool kLower, bool kOffsets, typename Weights>
void MultiplyScaled(const PanelArgs& args, Weights& weights, int64_t first, int64_t end,
                    int64_t row) {
  using Sums = TileSums<Tiles, kLower>;
  alignas(64) float products[kRowsAtOnce * kPanelColumns];
  float* const sums = args.sums + row * kPanelColumns;
  const int64_t rows = args.rows - row < kRowsAtOnce ? args.rows - row : kRowsAtOnce;
  const auto add = [&](int64_t segment) {
    const float* const input_sums =
        kOffsets ? args.input_sums + segment * args.input_sums_stride + row : nullptr;
    AddTerms<kOffsets>(sums, products, weights.terms(segment), input_sums, rows);
  };
  for (int64_t segment = first; segment < end; ++segment) {
    const SegmentPlace place = PlaceOf(args, segment);
    const uint32_t* a = place.activations + row * kBlockWords;
    Sums::Zero();
    MultiplyStep<Tiles, kLower, false>(a, weights.Next());
    if (segment > first) add(segment - 1);
    for (int64_t pair = kTilePairs; pair < place.steps; pair += kTilePairs) {
      MultiplyStep<Tiles, kLower, false>(a + pair, weights.Next());
    }
    Sums::Store(products);
  }
  add(end - 1);
}

// Segments [first, end) of a panel.
template <typename Codes>
void WidenSegments(Codes& codes, const PanelArgs& args, int64_t first, int64_t end, std::byte* out,
                   SegmentTerms* terms) {
  for (int64_t segment = first; segment < end; ++segment) {
    codes.BeginSegment(segment, terms++);
    for (int64_t pair = 0; pair < PlaceOf(args, segment).steps; pair += kTilePairs) {
      codes.template Widen<false>(out);
      out += kWideTileBytes;
    }
  }
}

// More than kRowsAtOnce rows.
template <typename Tiles, typename Codes>
void MultiplyScaledPanels(const PanelArgs& args, const PanelArgs* panels) {
  constexpr int64_t kPieceBytes = kScratchBytes / kMaxPanels;  // of a panel, wide
  const Geometry& g = *args.geometry;
  const int64_t at_once = kPieceBytes / (g.segment_steps / kTilePairs * kWideTileBytes);
  SegmentTerms terms[kMaxPanels][kPieceBytes / kWideTileBytes];
  Codes codes[kMaxPanels];
  for (int64_t panel = 0; panel < args.panels; ++panel) codes[panel].Begin(panels[panel]);
  for (int64_t first = 0; first < g.segments; first += at_once) {
    const int64_t end = first + at_once < g.segments ? first + at_once : g.segments;
    // About where the next piece stands.
    const int64_t next =
        end < g.segments ? g.panel_bytes * end / g.segments : args.panels * g.panel_bytes;
    for (int64_t panel = 0; panel < args.panels; ++panel) {
      WidenSegments(codes[panel], args, first, end, args.scratch + panel * kPieceBytes,
                    terms[panel]);
    }
    ForRowBlocks<Tiles>(args.rows, [&]<bool kLower>(int64_t row) {
      for (int64_t panel = 0; panel < args.panels; ++panel) {
        AskForShare(panels[panel].weights + next, g.panel_bytes * at_once / g.segments, args, row);
        StandingTiles weights{args.scratch + panel * kPieceBytes, terms[panel], first};
        MultiplyScaled<Tiles, kLower, Codes::kOffsets>(panels[panel], weights, first, end, row);
      }
    });
  }
}

// `kOtherwise`: for groups that are not whole tiles, which would read the next group's activations.
template <typename Tiles, typename Codes, void (*kOtherwise)(const PanelArgs&)>
void RunCodesTilePanel(const PanelArgs& args) {
  const Geometry& g = *args.geometry;
  PanelArgs panels[kMaxPanels];
  for (int64_t panel = 0; panel < args.panels; ++panel) panels[panel] = PanelOf(args, panel);
  if (g.segment_steps % kTilePairs != 0) {
    for (int64_t panel = 0; panel < args.panels; ++panel) kOtherwise(panels[panel]);
    return;
  }
  __builtin_memset(args.sums, 0, args.panels * args.rows * kPanelColumns * sizeof(float));
  if (args.rows > kRowsAtOnce) MultiplyScaledPanels<Tiles, Codes>(args, panels);
  for (int64_t panel = 0; panel < args.panels; ++panel) {
    if (args.rows <= kRowsAtOnce) {
      WideTiles<Codes> weights(panels[panel], args.scratch);
      ForRowBlocks<Tiles>(args.rows, [&]<bool kLower>(int64_t row) {
        MultiplyScaled<Tiles, kLower, Codes::kOffsets>(panels[panel], weights, 0, g.segments, row);
      });
    }
    WriteRows(panels[panel]);
  }
}

template <typename Tiles>
void RunNibbleTilePanel(const PanelArgs& args) {
  constexpr auto kOtherwise = &RunNibblePanel<DotI8, DotBf16, true, DotNibbles>;
  args.geometry->pair_segments > 0 ? RunCodesTilePanel<Tiles, OffsetCodes, kOtherwise>(args)
                                   : RunCodesTilePanel<Tiles, NibbleCodes, kOtherwise>(args);
}

}  // namespace
}  // namespace tessera::kernels::cpu::linear
