// Vectors of floats for the kernels of this folder, whose sources are compiled once per instruction
// set.
//
// The build defines TESSERA_SIMD_PATH (avx2, avx512) and the matching -m flags; everything here and
// in the sources lies in a namespace of that name and, but for the kernels themselves, has internal
// linkage, so that no copy compiled for a wide processor can be linked into the code that runs on
// all of them.
//
// Load and Store take float, bf16 or (Load) f16 and convert; *Part handle the last count < kLanes
// elements, reading zeros beyond. ReduceAdd sums lanes in a fixed order: results never depend on
// neighbours.
#pragma once

#if defined(__AVX512F__)
#include "kernels/cpu/simd/vector_avx512.h"
#else
#include "kernels/cpu/simd/vector_avx2.h"
#endif

namespace tessera::kernels::TESSERA_SIMD_PATH {
namespace {

// e^x, relative error below 2e-7; 0 below -87.3, at most e^88; NaN stays NaN.
// Cody-Waite reduction to |r| <= ln(2)/2, then the Taylor polynomial of degree 7 (remainder 5e-9).
inline Vec Exp(Vec x) {
  const Vec lowest = Set(-87.3f);
  const Vec clamped = Min(Set(88.0f), Max(lowest, x));  // this order keeps NaN
  const Vec n = Round(Mul(clamped, Set(1.44269504088896341f)));
  Vec r = Fma(n, Set(-0.693359375f), clamped);
  r = Fma(n, Set(2.12194440e-4f), r);
  Vec p = Set(1.0f / 5040);
  p = Fma(p, r, Set(1.0f / 720));
  p = Fma(p, r, Set(1.0f / 120));
  p = Fma(p, r, Set(1.0f / 24));
  p = Fma(p, r, Set(1.0f / 6));
  p = Fma(p, r, Set(0.5f));
  p = Fma(p, r, Set(1.0f));
  p = Fma(p, r, Set(1.0f));
  return Select(Above(lowest, x), Zero(), Scale2(p, n));
}

// tanh x, absolute error below 1.5e-7, relative error below 1e-6: by e^-2|x|, near 0 by the Taylor
// polynomial of degree 9.
inline Vec Tanh(Vec x) {
  const Vec square = Mul(x, x);
  Vec p = Set(62.0f / 2835);
  p = Fma(p, square, Set(-17.0f / 315));
  p = Fma(p, square, Set(2.0f / 15));
  p = Fma(p, square, Set(-1.0f / 3));
  const Vec near = Fma(Mul(p, square), x, x);
  const Vec tail = Exp(Mul(Abs(x), Set(-2.0f)));
  const Vec far = CopySign(Div(Sub(Set(1.0f), tail), Add(Set(1.0f), tail)), x);
  return Select(Above(Set(0.25f), Abs(x)), near, far);
}

inline float ExpOne(float x) {
  alignas(64) float lanes[kLanes];
  Store(lanes, Exp(Set(x)));
  return lanes[0];
}

// Calls step(offset, count) over [0, count) in vectors; count is kLanes but perhaps in the last
// call.
template <typename Step>
[[gnu::always_inline]] inline void ForVectors(int64_t count, const Step& step) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) step(i, int64_t{kLanes});
  if (i < count) step(i, count - i);
}

// Load or LoadPart, whichever `count` asks for; a constant count folds the branch away.
template <typename T>
[[gnu::always_inline]] inline Vec LoadUpTo(const T* p, int64_t count) {
  return count == kLanes ? Load(p) : LoadPart(p, count);
}
template <typename T>
[[gnu::always_inline]] inline void StoreUpTo(T* p, Vec v, int64_t count) {
  if (count == kLanes) {
    Store(p, v);
  } else {
    StorePart(p, v, count);
  }
}

}  // namespace
}  // namespace tessera::kernels::TESSERA_SIMD_PATH
