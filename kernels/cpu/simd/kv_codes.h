// Rows of keys and values in 8 bits (kernels/kv_rows.h) to elements and back, in registers.
#pragma once

#include "kernels/cpu/simd/vector.h"
#include "kernels/kv_rows.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {
namespace {

#if defined(__AVX512F__)
inline __m128i LoadBytes(const std::byte* codes) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
}
inline Vec FromI8(__m128i codes) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)); }
// A 256th of their values: as f16 the exponent has a bias that is 8 higher.
inline Vec FromF8(__m128i codes) {
  const __m256i wide = _mm256_cvtepu8_epi16(codes);
  const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(wide, _mm256_set1_epi16(0x80)), 8);
  const __m256i rest = _mm256_slli_epi16(_mm256_and_si256(wide, _mm256_set1_epi16(0x7f)), 7);
  return _mm512_cvtph_ps(_mm256_or_si256(sign, rest));
}
using Magnitudes = __m512i;
inline Magnitudes MagnitudesOf(Vec x) { return _mm512_castps_si512(Abs(x)); }
inline Magnitudes MaxOf(Magnitudes a, Magnitudes b) { return _mm512_max_epu32(a, b); }
inline uint32_t LargestBits(Magnitudes a) { return _mm512_reduce_max_epu32(a); }
inline __m128i ToI8(Vec x) { return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x)); }
#else
inline __m128i LoadBytes(const std::byte* codes) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes));
}
inline Vec FromI8(__m128i codes) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)); }
// A 256th of their values: as f16 the exponent has a bias that is 8 higher.
inline Vec FromF8(__m128i codes) {
  const __m128i wide = _mm_cvtepu8_epi16(codes);
  const __m128i sign = _mm_slli_epi16(_mm_and_si128(wide, _mm_set1_epi16(0x80)), 8);
  const __m128i rest = _mm_slli_epi16(_mm_and_si128(wide, _mm_set1_epi16(0x7f)), 7);
  return _mm256_cvtph_ps(_mm_or_si128(sign, rest));
}
using Magnitudes = __m256i;
inline Magnitudes MagnitudesOf(Vec x) { return _mm256_castps_si256(Abs(x)); }
inline Magnitudes MaxOf(Magnitudes a, Magnitudes b) { return _mm256_max_epu32(a, b); }
inline uint32_t LargestBits(Magnitudes a) {
  const __m128i half = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  const __m128i pair = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0x4e));
  return static_cast<uint32_t>(
      _mm_cvtsi128_si32(_mm_max_epu32(pair, _mm_shuffle_epi32(pair, 0xb1))));
}
inline __m128i ToI8(Vec x) {
  const __m256i words = _mm256_cvtps_epi32(x);
  const __m128i halves =
      _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  return _mm_packs_epi16(halves, halves);
}
#endif

// The last codes of a row: what stands behind them may be nobody's memory.
inline __m128i LoadBytesUpTo(const std::byte* codes, int64_t count) {
  if (count == kLanes) return LoadBytes(codes);
  alignas(16) std::byte copy[16] = {};
  __builtin_memcpy(copy, codes, static_cast<size_t>(count));
  return _mm_load_si128(reinterpret_cast<const __m128i*>(copy));
}

// The bits of KvRowValue, rounded to C.
template <typename C>
[[gnu::always_inline]] inline void ReadRow(const std::byte* row, int64_t head_dim, DType dtype,
                                           C* out) {
  const float scale = KvScaleAt(row, head_dim);
  if (dtype == DType::kI8) {
    const Vec factor = Set(scale);
    ForVectors(head_dim, [&](int64_t d, int64_t n) {
      StoreUpTo(out + d, Mul(FromI8(LoadBytesUpTo(row + d, n)), factor), n);
    });
    return;
  }
  const Vec factor = Set(scale * 256.0f);
  ForVectors(head_dim, [&](int64_t d, int64_t n) {
    StoreUpTo(out + d, Mul(FromF8(LoadBytesUpTo(row + d, n)), factor), n);
  });
}

// The bytes of WriteKvRow.
template <typename T>
[[gnu::always_inline]] inline void WriteRow(const T* in, int64_t head_dim, DType dtype,
                                            std::byte* row) {
  if (dtype != DType::kI8) return WriteKvRow(in, head_dim, dtype, row);
  Magnitudes largest = MagnitudesOf(Zero());
  ForVectors(head_dim, [&](int64_t d, int64_t n) {
    largest = MaxOf(largest, MagnitudesOf(LoadUpTo(in + d, n)));
  });
  const KvScale scale = KvScaleOf(LargestBits(largest), kMaxI8Code);
  const int64_t end = KvScaleOffset(head_dim);
  __builtin_memcpy(row + end, &scale.scale, sizeof(scale.scale));
  if (scale.inverse == 0.0f) {
    __builtin_memset(row, 0, static_cast<size_t>(end));
    return;
  }
  const Vec inverse = Set(scale.inverse);
  ForVectors(head_dim, [&](int64_t d, int64_t n) {
    alignas(16) std::byte codes[16];
    _mm_store_si128(reinterpret_cast<__m128i*>(codes), ToI8(Mul(LoadUpTo(in + d, n), inverse)));
    // Behind the last element there are zeros.
    __builtin_memcpy(row + d, codes, static_cast<size_t>(n == kLanes ? n : end - d));
  });
}

}  // namespace
}  // namespace tessera::kernels::TESSERA_SIMD_PATH
