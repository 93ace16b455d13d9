// Eight floats in a register: the AVX2 (with FMA and F16C) half of vector.h, which says what each
// means.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/half_floats.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {
namespace {

using Vec = __m256;
using VecMask = __m256;  // all ones or all zeros per lane
constexpr int kLanes = 8;
constexpr int kScoreRows = 2;  // rows of registers that the attention kernels block for

inline Vec Zero() { return _mm256_setzero_ps(); }
inline Vec Set(float x) { return _mm256_set1_ps(x); }
inline Vec Add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
inline Vec Sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
inline Vec Mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
inline Vec Div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
inline Vec Max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
inline Vec Min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
inline Vec Fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
inline Vec Round(Vec a) { return _mm256_round_ps(a, 8); }
inline Vec Abs(Vec a) { return _mm256_andnot_ps(Set(-0.0f), a); }
inline Vec CopySign(Vec magnitude, Vec sign) {
  const Vec bit = Set(-0.0f);
  return _mm256_or_ps(_mm256_and_ps(bit, sign), _mm256_andnot_ps(bit, magnitude));
}
// value * 2^n for a whole n of [-126, 127]
inline Vec Scale2(Vec value, Vec n) {
  const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  const __m256i one = _mm256_castps_si256(Set(1.0f));
  return _mm256_mul_ps(value, _mm256_castsi256_ps(_mm256_add_epi32(one, exponent)));
}

inline VecMask AtLeast(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_GE_OQ); }
inline VecMask Above(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
inline VecMask Equal(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
inline Vec Select(VecMask mask, Vec yes, Vec no) { return _mm256_blendv_ps(no, yes, mask); }
inline uint32_t Bits(VecMask mask) { return static_cast<uint32_t>(_mm256_movemask_ps(mask)); }
inline VecMask FirstLanes(int64_t count) {
  const int limit = static_cast<int>(count < 0 ? 0 : count > kLanes ? kLanes : count);
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(limit), lanes));
}
inline VecMask LanesBetween(int64_t begin, int64_t end) {
  return _mm256_andnot_ps(FirstLanes(begin), FirstLanes(end));
}

inline Vec FromBf16(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline __m128i ToBf16(Vec v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
  const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
  const __m256 nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
  const __m256i words = _mm256_castps_si256(
      _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), nan));
  return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

inline Vec Load(const float* p) { return _mm256_loadu_ps(p); }
inline Vec Load(const BFloat16* p) {
  return FromBf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Vec Load(const Float16* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline void Store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
inline void Store(BFloat16* p, Vec v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), ToBf16(v));
}

inline Vec LoadPart(const float* p, int64_t count) {
  return _mm256_maskload_ps(p, _mm256_castps_si256(FirstLanes(count)));
}
// AVX2 masks no 16-bit elements: through a copy.
inline __m128i LoadPart16(const void* p, int64_t count) {
  alignas(16) uint16_t copy[kLanes] = {};
  __builtin_memcpy(copy, p, static_cast<size_t>(count) * sizeof(uint16_t));
  return _mm_load_si128(reinterpret_cast<const __m128i*>(copy));
}
inline Vec LoadPart(const BFloat16* p, int64_t count) { return FromBf16(LoadPart16(p, count)); }
inline Vec LoadPart(const Float16* p, int64_t count) {
  return _mm256_cvtph_ps(LoadPart16(p, count));
}
inline void StorePart(float* p, Vec v, int64_t count) {
  _mm256_maskstore_ps(p, _mm256_castps_si256(FirstLanes(count)), v);
}
inline void StorePart(BFloat16* p, Vec v, int64_t count) {
  alignas(16) uint16_t copy[kLanes];
  _mm_store_si128(reinterpret_cast<__m128i*>(copy), ToBf16(v));
  __builtin_memcpy(p, copy, static_cast<size_t>(count) * sizeof(uint16_t));
}

inline float ReduceAdd(Vec v) {
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}
inline float ReduceMax(Vec v) {
  const __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 pair = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
}

// Four sums at once, each in the same order.
inline __m128 ReduceAdd4(Vec a, Vec b, Vec c, Vec d) {
  const Vec ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
  const Vec cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
  const Vec low = _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(ab), _mm256_castps_pd(cd)));
  const Vec high = _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(ab), _mm256_castps_pd(cd)));
  const Vec sums = _mm256_add_ps(low, high);
  return _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1));
}

// The sum of the lanes, in double.
inline double ReduceAddDouble(Vec v) {
  const __m256d sum = _mm256_add_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(v)),
                                    _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
  const __m128d half = _mm_add_pd(_mm256_castpd256_pd128(sum), _mm256_extractf128_pd(sum, 1));
  return _mm_cvtsd_f64(_mm_add_sd(half, _mm_unpackhi_pd(half, half)));
}

}  // namespace
}  // namespace tessera::kernels::TESSERA_SIMD_PATH
