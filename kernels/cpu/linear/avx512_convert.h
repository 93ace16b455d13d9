// Rows of activations between f32 and bf16, and bf16 weights into panels, with AVX-512. Internal
// linkage: see panel_block.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx512_transpose.h"
#include "kernels/cpu/linear/avx512_vectors.h"

namespace tessera::kernels::cpu::linear {
namespace {

constexpr __mmask16 MaskOf(int64_t left) {
  return left >= 16 ? static_cast<__mmask16>(0xffff) : static_cast<__mmask16>((1u << left) - 1);
}

void Widen512(float* out, const uint16_t* in_bf16, int64_t count) {
  for (int64_t i = 0; i < count; i += 16) {
    const __mmask16 mask = MaskOf(count - i);
    const __m256i halves = _mm256_maskz_loadu_epi16(mask, in_bf16 + i);
    const __m512i bits = _mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
    _mm512_mask_storeu_ps(out + i, mask, _mm512_castsi512_ps(bits));
  }
}

void Narrow512(uint16_t* out_bf16, const float* in, int64_t count) {
  for (int64_t i = 0; i < count; i += 16) {
    const __mmask16 mask = MaskOf(count - i);
    const __m512 values = _mm512_maskz_loadu_ps(mask, in + i);
    _mm256_mask_storeu_epi16(out_bf16 + i, mask, Avx512Vectors::ToBf16(values));
  }
}

// A cache line of each row, a word of two inputs at a time.
template <bool kReadSoon>
void TurnLines512(std::byte* panel, const uint16_t* rows, int64_t row_stride, int64_t inputs) {
  constexpr int64_t kLineInputs = 32;
  constexpr int64_t kAheadInputs = 256;  // rows are too many for the processor to foresee each
  constexpr int kLanes = 16;
  for (int64_t first = 0; first < inputs; first += kLineInputs) {
    const bool in_row = first + kAheadInputs < inputs;  // else in that of the next panel
    const int64_t ahead = kAheadInputs + (in_row ? 0 : kPanelColumns * row_stride - inputs);
    for (int64_t column = 0; column < kPanelColumns; column += kLanes) {
      const uint16_t* in = rows + column * row_stride + first;
      __m512i words[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        words[i] = _mm512_loadu_si512(in + i * row_stride);
        // Rows are often a page apart, so the first cache would not hold a line of each.
        _mm_prefetch(reinterpret_cast<const char*>(in + i * row_stride + ahead), _MM_HINT_T1);
      }
      Transpose(words);
      std::byte* out = panel + (first / 2 * kPanelColumns + column) * 4;
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        auto* line = reinterpret_cast<__m512i*>(out + i * kPanelColumns * 4);
        kReadSoon ? _mm512_store_si512(line, words[i]) : _mm512_stream_si512(line, words[i]);
      }
    }
  }
  if (!kReadSoon) _mm_sfence();  // whoever sees what this thread writes next sees streamed lines
}

// Kernel::turn.
void TurnPanel512(std::byte* panel, const uint16_t* rows, int64_t row_stride, int64_t inputs,
                  bool read_soon) {
  (read_soon ? &TurnLines512<true> : &TurnLines512<false>)(panel, rows, row_stride, inputs);
}

}  // namespace
}  // namespace tessera::kernels::cpu::linear
