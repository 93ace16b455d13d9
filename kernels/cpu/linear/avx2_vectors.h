// AVX2, FMA and F16C for panel_block.h: 8 columns a vector, 3 rows x 32 columns of accumulators.
// Weights of every type are widened to f32 in registers and multiplied with f32 activations.
// Internal linkage: see there.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/linear/panel_kernel.h"

namespace tessera::kernels::cpu::linear {
namespace {

struct Avx2Vectors {
  using Float = __m256;
  static constexpr int kLanes = 8;

  static Float Zero() { return _mm256_setzero_ps(); }
  static Float Broadcast(float value) { return _mm256_set1_ps(value); }
  static Float LoadF16(const std::byte* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Float Load(const float* p) { return _mm256_loadu_ps(p); }
  static void Store(float* p, Float v) { _mm256_storeu_ps(p, v); }
  static Float MultiplyAdd(Float sum, Float a, Float b) { return _mm256_fmadd_ps(a, b, sum); }
  static void StoreBf16(uint16_t* p, Float v) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i words = _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc0), nan);
    const __m256i packed = _mm256_packus_epi32(words, words);
    const __m256i ordered = _mm256_permute4x64_epi64(packed, 0b1000);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(ordered));
  }
};

struct Avx2Step {
  using Vectors = Avx2Vectors;
  using Operand = __m256;
  static constexpr int kMaxRows = 3;
  static constexpr int kVectors = kPanelColumns / Vectors::kLanes;

  static Operand Broadcast(const uint32_t* word) {
    return _mm256_broadcast_ss(reinterpret_cast<const float*>(word));
  }
  static __m256 MultiplyAdd(__m256 sum, Operand w, Operand a) { return _mm256_fmadd_ps(w, a, sum); }
};

// Steps of codes to [input][column] f32.
template <typename Step>
void WidenSteps(std::byte* out, const std::byte* weights, int64_t steps) {
  float* p = reinterpret_cast<float*>(out);
  for (int64_t step = 0; step < steps; ++step) {
    for (int word = 0; word < Step::kWords; ++word) {
      typename Step::Operand row[Step::kVectors];
      Step::Load(weights + step * Step::kBytes, word, row);
      for (int v = 0; v < Step::kVectors; ++v) _mm256_store_ps(p + v * 8, row[v]);
      p += kPanelColumns;
    }
  }
}

struct Avx2F32 : Avx2Step {
  static constexpr int kBytes = 128, kWords = 1;
  static void Load(const std::byte* weights, int, Operand (&out)[kVectors]) {
    const float* p = reinterpret_cast<const float*>(weights);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) out[v] = _mm256_loadu_ps(p + v * 8);
  }
};

struct Avx2Bf16 : Avx2Step {
  static constexpr int kMaxRows = 2;  // widening needs registers too
  static constexpr int kBytes = 128, kWords = 2;
  static void Load(const std::byte* weights, int word, Operand (&out)[kVectors]) {
    const __m256i* p = reinterpret_cast<const __m256i*>(weights);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const __m256i pair = _mm256_loadu_si256(p + v);
      const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000));
      out[v] = _mm256_castsi256_ps(word == 0 ? _mm256_slli_epi32(pair, 16)
                                             : _mm256_and_si256(pair, high));
    }
  }
};

struct Avx2I8 : Avx2Step {
  static constexpr int kBytes = 64, kWords = 2;
  static void Load(const std::byte* weights, int word, Operand (&out)[kVectors]) {
    const std::byte* p = weights + word * kPanelColumns;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + v * 8));
      out[v] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
    }
  }
  // To [input][column] f32.
  static void Widen(std::byte* out, const std::byte* weights, int64_t steps) {
    WidenSteps<Avx2I8>(out, weights, steps);
  }
};

// Codes of 4 bits, without a zero.
struct Avx2Nibbles : Avx2Step {
  static constexpr int kMaxRows = 2;  // widening needs registers too
  static constexpr int kBytes = 32, kWords = 2;
  static void Load(const std::byte* weights, int word, Operand (&out)[kVectors]) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const auto* p = reinterpret_cast<const __m128i*>(weights + v * 8);
      const __m256i both = _mm256_cvtepu8_epi32(_mm_loadl_epi64(p));
      out[v] = _mm256_cvtepi32_ps(word == 0 ? _mm256_and_si256(both, _mm256_set1_epi32(0xf))
                                            : _mm256_srli_epi32(both, 4));
    }
  }
  static void Widen(std::byte* out, const std::byte* weights, int64_t steps) {
    WidenSteps<Avx2Nibbles>(out, weights, steps);
  }
};

// e4m3: exponent and mantissa move to their place in an f32, whose bias is 120 higher.
struct Avx2F8 : Avx2Step {
  static constexpr int kMaxRows = 2;  // widening needs registers too
  static constexpr int kBytes = 64, kWords = 2;
  static void Load(const std::byte* weights, int word, Operand (&out)[kVectors]) {
    const std::byte* p = weights + word * kPanelColumns;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + v * 8));
      const __m256i moved = _mm256_slli_epi32(_mm256_cvtepi8_epi32(bytes), 20);
      const __m256i bits = _mm256_and_si256(moved, _mm256_set1_epi32(static_cast<int>(0x87f00000)));
      out[v] = _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0x1p120f));
    }
  }
  static void Widen(std::byte* out, const std::byte* weights, int64_t steps) {
    WidenSteps<Avx2F8>(out, weights, steps);
  }
};

}  // namespace
}  // namespace tessera::kernels::cpu::linear
