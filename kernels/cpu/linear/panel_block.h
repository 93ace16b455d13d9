// One panel of a linear for any vector instruction set: the loops over segments, rows and steps,
// with the accumulators of up to Step::kMaxRows rows x 32 columns in registers. A Step says how
// weights are read and multiplied (avx2_vectors.h, avx512_vectors.h).
//
// Included by files that are compiled with different -m flags, so everything here has internal
// linkage.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/cpu/linear/panel_kernel.h"

namespace tessera::kernels::cpu::linear {
namespace {

// Weights this far ahead are asked for; memory needs some hundred nanoseconds. Not a whole page:
// on an Intel processor that costs a sixth of the rate of one row.
constexpr int64_t kPrefetchBytes = 3072;
// Those that are asked for twice: from memory, and from the second cache.
constexpr int64_t kFarPrefetchBytes = 16384;
constexpr int64_t kNearPrefetchBytes = 2048;

// Weights to ask memory for while others are multiplied, evenly over all steps of all blocks of
// rows: if only the first block's steps did, memory would rest while the other blocks compute, and
// they while it works.
struct Ahead {
  const std::byte* begin;
  int64_t size_bytes;
};

// How the lines of weights to come are asked for.
enum class Asked {
  kFar,   // into the second cache
  kNear,  // into the first
  kTwice  // into the second, then into the first
};

// For weights that `rows` rows are multiplied with, and no others. Where little is done with a line
// the loads that the processor starts by itself fetch from the second cache early enough; with more
// it would wait for that. Where much is done asking twice costs nothing by comparison. A line of
// int8 is multiplied longer than it takes to come. Measured, see tests/bench/RESULTS.md.
template <typename Step>
constexpr Asked AskedFor(int rows) {
  const int products = rows * Step::kWords;  // of a register of weights
  if (Step::kBytes == 64) return Asked::kNear;
  return products < 2 ? Asked::kFar : products < 8 ? Asked::kNear : Asked::kTwice;
}

// sums[r][c] += the products of `steps` steps for kRows rows; with `scales` (i8) += scale[c] * the
// products.
template <typename Step, int kRows, bool kScaled, Asked kAsked>
void MultiplyBlock(const uint32_t* activations, const std::byte* weights, int64_t steps,
                   const float* scales, float* sums, Ahead ahead) {
  using Vectors = typename Step::Vectors;
  constexpr int kVectors = kPanelColumns / Vectors::kLanes;
  typename Vectors::Float acc[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      acc[r][v] =
          kScaled ? Vectors::Zero() : Vectors::Load(sums + r * kPanelColumns + v * Vectors::kLanes);
    }
  }
  const char* next = reinterpret_cast<const char*>(ahead.begin);
  const int64_t next_stride = ahead.size_bytes / steps;
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 2
    for (int line = 0; line < Step::kBytes; line += 64) {
      if constexpr (kAsked == Asked::kTwice) {
        _mm_prefetch(next + (kFarPrefetchBytes - kPrefetchBytes) + line, _MM_HINT_T1);
        _mm_prefetch(next - (kPrefetchBytes - kNearPrefetchBytes) + line, _MM_HINT_T0);
      } else {
        _mm_prefetch(next + line, kAsked == Asked::kNear ? _MM_HINT_T0 : _MM_HINT_T1);
      }
    }
    next += next_stride;
#pragma GCC unroll 2
    for (int word = 0; word < Step::kWords; ++word) {
      typename Step::Operand w[kVectors];
      Step::Load(weights, word, w);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const typename Step::Operand a = Step::Broadcast(activations + r * kBlockWords + word);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) acc[r][v] = Step::MultiplyAdd(acc[r][v], w[v], a);
      }
    }
    weights += Step::kBytes;
    activations += Step::kWords;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* place = sums + r * kPanelColumns + v * Vectors::kLanes;
      if constexpr (kScaled) {
        const auto scale = Vectors::Load(scales + v * Vectors::kLanes);
        acc[r][v] = Vectors::MultiplyAdd(Vectors::Load(place), acc[r][v], scale);
      }
      Vectors::Store(place, acc[r][v]);
    }
  }
}

// Any number of rows, in blocks of nearly equal size. `behind` are the weights that come next, as
// they stand in memory.
template <typename Step, bool kScaled>
void MultiplyRows(const uint32_t* activations, const std::byte* weights, int64_t steps,
                  const float* scales, float* sums, int64_t rows, Ahead behind) {
  using Block = void (*)(const uint32_t*, const std::byte*, int64_t, const float*, float*, Ahead);
  struct Blocks {
    Block alone[Step::kMaxRows];   // computes all rows
    Block others[Step::kMaxRows];  // asks for what is used only after other blocks of rows
  };
  constexpr Asked kForOthers = Step::kBytes == 64 ? Asked::kNear : Asked::kFar;
  constexpr auto kBlocks = []<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    return Blocks{{&MultiplyBlock<Step, kIndex + 1, kScaled, AskedFor<Step>(kIndex + 1)>...},
                  {&MultiplyBlock<Step, kIndex + 1, kScaled, kForOthers>...}};
  }
  (std::make_integer_sequence<int, Step::kMaxRows>());

  const int64_t blocks = (rows + Step::kMaxRows - 1) / Step::kMaxRows;
  const Block* const of_rows = blocks == 1 ? kBlocks.alone : kBlocks.others;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t begin = rows * block / blocks, end = rows * (block + 1) / blocks;
    const Ahead ahead = {behind.begin + behind.size_bytes * block / blocks,
                         behind.size_bytes / blocks};
    of_rows[end - begin - 1](activations + begin * kBlockWords, weights, steps, scales,
                             sums + begin * kPanelColumns, ahead);
  }
}

template <typename Vectors>
void WriteRow(const PanelArgs& args, int64_t row, const float* sums) {
  constexpr int kVectors = kPanelColumns / Vectors::kLanes;
  alignas(64) float biased[kPanelColumns];
  alignas(64) uint16_t halves[kPanelColumns];
  const bool whole = args.columns == kPanelColumns;
  float* out_f32 = reinterpret_cast<float*>(args.out) + row * args.out_row_stride;
  uint16_t* out_bf16 = reinterpret_cast<uint16_t*>(args.out) + row * args.out_row_stride;
  if (args.bias != nullptr) {
    for (int64_t c = 0; c < args.columns; ++c) biased[c] = sums[c] + args.bias[c];
    for (int64_t c = args.columns; c < kPanelColumns; ++c) biased[c] = 0.0f;
    sums = biased;
  }
  if (args.out_bf16) {
    uint16_t* place = whole ? out_bf16 : halves;
    for (int v = 0; v < kVectors; ++v) {
      Vectors::StoreBf16(place + v * Vectors::kLanes, Vectors::Load(sums + v * Vectors::kLanes));
    }
    if (!whole) __builtin_memcpy(out_bf16, halves, args.columns * 2);
  } else {
    __builtin_memcpy(out_f32, sums, args.columns * 4);
  }
}

struct SegmentPlace {
  const std::byte* weights;
  const uint32_t* activations;
  int64_t steps;
};

SegmentPlace PlaceOf(const PanelArgs& args, int64_t segment) {
  const Geometry& g = *args.geometry;
  const int64_t block = segment / g.segments_per_block, within = segment % g.segments_per_block;
  return {args.weights + segment * g.segment_bytes,
          args.activations + block * args.block_stride_words + within * g.segment_words,
          segment + 1 < g.segments ? g.segment_steps : g.last_segment_steps};
}

template <typename Step>
void RunPanel(const PanelArgs& args) {
  __builtin_memset(args.sums, 0, args.rows * kPanelColumns * sizeof(float));
  for (int64_t segment = 0; segment < args.geometry->segments; ++segment) {
    const SegmentPlace s = PlaceOf(args, segment);
    const int64_t size_bytes = s.steps * Step::kBytes;
    const int64_t distance = args.rows <= Step::kMaxRows ? kPrefetchBytes : size_bytes;
    MultiplyRows<Step, false>(s.activations, s.weights, s.steps, nullptr, args.sums, args.rows,
                              {s.weights + distance, size_bytes});
  }
  for (int64_t row = 0; row < args.rows; ++row) {
    WriteRow<typename Step::Vectors>(args, row, args.sums + row * kPanelColumns);
  }
}

// i8: few rows widen the weights in registers; for more they are widened once, to the form that
// Wide reads.
template <typename Step, typename Wide>
void RunScaledPanel(const PanelArgs& args) {
  __builtin_memset(args.sums, 0, args.rows * kPanelColumns * sizeof(float));
  for (int64_t segment = 0; segment < args.geometry->segments; ++segment) {
    const SegmentPlace s = PlaceOf(args, segment);
    const float* scales = reinterpret_cast<const float*>(s.weights);
    const std::byte* weights = s.weights + kPanelColumns * sizeof(float);
    if (args.rows <= Step::kMaxRows) {
      MultiplyRows<Step, true>(s.activations, weights, s.steps, scales, args.sums, args.rows,
                               {weights + kPrefetchBytes, s.steps * Step::kBytes});
      continue;
    }
    Step::Widen(args.scratch, weights, s.steps);
    MultiplyRows<Wide, true>(
        s.activations, args.scratch, s.steps * Step::kWords / Wide::kWords, scales, args.sums,
        args.rows, {s.weights + args.geometry->segment_bytes, args.geometry->segment_bytes});
  }
  for (int64_t row = 0; row < args.rows; ++row) {
    WriteRow<typename Step::Vectors>(args, row, args.sums + row * kPanelColumns);
  }
}

}  // namespace
}  // namespace tessera::kernels::cpu::linear
