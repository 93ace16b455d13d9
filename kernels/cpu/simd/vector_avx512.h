// Sixteen floats in a register: the AVX-512 (F, BW, DQ, VL) half of vector.h, which says what each
// means.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/half_floats.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {
namespace {

using Vec = __m512;
using VecMask = __mmask16;
constexpr int kLanes = 16;
constexpr int kScoreRows = 4;  // rows of registers that the attention kernels block for

inline Vec Zero() { return _mm512_setzero_ps(); }
inline Vec Set(float x) { return _mm512_set1_ps(x); }
inline Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
inline Vec Sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
inline Vec Mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
inline Vec Div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
inline Vec Max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
inline Vec Min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
inline Vec Fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec Round(Vec a) { return _mm512_roundscale_ps(a, 8); }
inline Vec Abs(Vec a) { return _mm512_abs_ps(a); }
inline Vec CopySign(Vec magnitude, Vec sign) {
  const Vec bit = Set(-0.0f);
  return _mm512_or_ps(_mm512_and_ps(bit, sign), _mm512_andnot_ps(bit, magnitude));
}
// value * 2^n for a whole n
inline Vec Scale2(Vec value, Vec n) { return _mm512_scalef_ps(value, n); }

inline VecMask AtLeast(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
inline VecMask Above(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
inline VecMask Equal(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
inline Vec Select(VecMask mask, Vec yes, Vec no) { return _mm512_mask_mov_ps(no, mask, yes); }
inline uint32_t Bits(VecMask mask) { return mask; }
inline VecMask FirstLanes(int64_t count) {
  return count >= kLanes ? VecMask(0xffff) : VecMask((1u << (count < 0 ? 0 : count)) - 1u);
}
inline VecMask LanesBetween(int64_t begin, int64_t end) {
  return static_cast<VecMask>(FirstLanes(end) & ~FirstLanes(begin));
}

inline Vec FromBf16(__m256i bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline __m256i ToBf16(Vec v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
  // NaN is made quiet instead of rounded.
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const VecMask number = _mm512_cmp_ps_mask(v, v, _CMP_ORD_Q);
  const __m512i rounded = _mm512_mask_add_epi32(quiet, number, bits, bias);
  const __m512i high_halves = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0x1f001d, 0x1b0019, 0x170015,
                                               0x130011, 0xf000d, 0xb0009, 0x70005, 0x30001);
  return _mm512_castsi512_si256(_mm512_permutexvar_epi16(high_halves, rounded));
}

inline Vec Load(const float* p) { return _mm512_loadu_ps(p); }
inline Vec Load(const BFloat16* p) {
  return FromBf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Vec Load(const Float16* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline void Store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
inline void Store(BFloat16* p, Vec v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), ToBf16(v));
}

inline Vec LoadPart(const float* p, int64_t count) {
  return _mm512_maskz_loadu_ps(FirstLanes(count), p);
}
inline Vec LoadPart(const BFloat16* p, int64_t count) {
  return FromBf16(_mm256_maskz_loadu_epi16(FirstLanes(count), p));
}
inline Vec LoadPart(const Float16* p, int64_t count) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(FirstLanes(count), p));
}
inline void StorePart(float* p, Vec v, int64_t count) {
  _mm512_mask_storeu_ps(p, FirstLanes(count), v);
}
inline void StorePart(BFloat16* p, Vec v, int64_t count) {
  _mm256_mask_storeu_epi16(p, FirstLanes(count), ToBf16(v));
}

inline float ReduceAdd(Vec v) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}
inline float ReduceMax(Vec v) {
  const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
}

// Four sums at once, each in the same order.
inline __m128 ReduceAdd4(Vec a, Vec b, Vec c, Vec d) {
  const Vec ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  const Vec cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  const Vec low = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd)));
  const Vec high = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd)));
  const Vec sums = _mm512_add_ps(low, high);
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(sums), _mm512_extractf32x8_ps(sums, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

// The sum of the lanes, in double.
inline double ReduceAddDouble(Vec v) {
  const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
  const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
  return _mm512_reduce_add_pd(_mm512_add_pd(low, high));
}

}  // namespace
}  // namespace tessera::kernels::TESSERA_SIMD_PATH
