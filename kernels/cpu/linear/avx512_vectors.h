// AVX-512 (F, BW, DQ, VL) for panel_block.h: 16 columns a vector, 12 rows x 32 columns of
// accumulators. Weights of every type are widened to f32 in registers and multiplied with f32
// activations; the steps that multiply bf16 pairs at once are in dot_avx512.cc. Internal linkage:
// see panel_block.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/linear/panel_kernel.h"

namespace tessera::kernels::cpu::linear {
namespace {

struct Avx512Vectors {
  using Float = __m512;
  static constexpr int kLanes = 16;

  static Float Zero() { return _mm512_setzero_ps(); }
  static Float Broadcast(float value) { return _mm512_set1_ps(value); }
  static Float LoadF16(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Float Load(const float* p) { return _mm512_loadu_ps(p); }
  static void Store(float* p, Float v) { _mm512_storeu_ps(p, v); }
  static Float MultiplyAdd(Float sum, Float a, Float b) { return _mm512_fmadd_ps(a, b, sum); }
  static __m256i ToBf16(Float v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, nan, _mm512_set1_epi32(0x7fc0)));
  }
  static void StoreBf16(uint16_t* p, Float v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), ToBf16(v));
  }
};

struct Avx512Step {
  using Vectors = Avx512Vectors;
  using Operand = __m512;
  static constexpr int kMaxRows = 12;
  static constexpr int kVectors = kPanelColumns / Vectors::kLanes;

  static Operand Broadcast(const uint32_t* word) {
    return _mm512_set1_ps(*reinterpret_cast<const float*>(word));
  }
  static __m512 MultiplyAdd(__m512 sum, Operand w, Operand a) { return _mm512_fmadd_ps(w, a, sum); }
};

// Steps of codes to [input][column] f32.
template <typename Step>
void WidenSteps512(std::byte* out, const std::byte* weights, int64_t steps) {
  float* p = reinterpret_cast<float*>(out);
  for (int64_t step = 0; step < steps; ++step) {
    for (int word = 0; word < Step::kWords; ++word) {
      typename Step::Operand row[Step::kVectors];
      Step::Load(weights + step * Step::kBytes, word, row);
      _mm512_store_ps(p, row[0]);
      _mm512_store_ps(p + 16, row[1]);
      p += kPanelColumns;
    }
  }
}

struct Avx512F32 : Avx512Step {
  static constexpr int kBytes = 128, kWords = 1;
  static void Load(const std::byte* weights, int, Operand (&out)[kVectors]) {
    const float* p = reinterpret_cast<const float*>(weights);
    out[0] = _mm512_loadu_ps(p);
    out[1] = _mm512_loadu_ps(p + 16);
  }
};

struct Avx512Bf16 : Avx512Step {
  static constexpr int kBytes = 128, kWords = 2;
  static void Load(const std::byte* weights, int word, Operand (&out)[kVectors]) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const __m512i pair = _mm512_loadu_si512(weights + v * 64);
      const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000));
      out[v] = _mm512_castsi512_ps(word == 0 ? _mm512_slli_epi32(pair, 16)
                                             : _mm512_and_si512(pair, high));
    }
  }
};

struct Avx512I8 : Avx512Step {
  static constexpr int kBytes = 64, kWords = 2;
  static void Load(const std::byte* weights, int word, Operand (&out)[kVectors]) {
    const __m128i* p = reinterpret_cast<const __m128i*>(weights + word * kPanelColumns);
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      out[v] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p + v)));
    }
  }
  static void Widen(std::byte* out, const std::byte* weights, int64_t steps) {
    WidenSteps512<Avx512I8>(out, weights, steps);
  }
};

// Codes of 4 bits, without a zero.
struct Avx512Nibbles : Avx512Step {
  static constexpr int kBytes = 32, kWords = 2;
  static void Load(const std::byte* weights, int word, Operand (&out)[kVectors]) {
    const __m128i* p = reinterpret_cast<const __m128i*>(weights);
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const __m512i both = _mm512_cvtepu8_epi32(_mm_loadu_si128(p + v));
      out[v] = _mm512_cvtepi32_ps(word == 0 ? _mm512_and_si512(both, _mm512_set1_epi32(0xf))
                                            : _mm512_srli_epi32(both, 4));
    }
  }
  static void Widen(std::byte* out, const std::byte* weights, int64_t steps) {
    WidenSteps512<Avx512Nibbles>(out, weights, steps);
  }
};

// e4m3: exponent and mantissa move to their place in an f32, whose bias is 120 higher.
struct Avx512F8 : Avx512Step {
  static constexpr int kBytes = 64, kWords = 2;
  static void Load(const std::byte* weights, int word, Operand (&out)[kVectors]) {
    const __m128i* p = reinterpret_cast<const __m128i*>(weights + word * kPanelColumns);
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const __m512i moved = _mm512_slli_epi32(_mm512_cvtepi8_epi32(_mm_loadu_si128(p + v)), 20);
      const __m512i bits = _mm512_and_si512(moved, _mm512_set1_epi32(static_cast<int>(0x87f00000)));
      out[v] = _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p120f));
    }
  }
  static void Widen(std::byte* out, const std::byte* weights, int64_t steps) {
    WidenSteps512<Avx512F8>(out, weights, steps);
  }
};

}  // namespace
}  // namespace tessera::kernels::cpu::linear
