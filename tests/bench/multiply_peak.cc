#include "tests/bench/multiply_peak.h"

#include <immintrin.h>

#include <chrono>
#include <vector>

#include "kernels/cpu/isa.h"

namespace tessera::bench {
namespace {

constexpr int kSums = 16;  // more than an instruction's latency times how many start in a cycle

// Each multiplies for `steps` rounds of kSums instructions, and returns a number that depends on
// it.
__attribute__((target("avx512f,avx512bf16"))) float MultiplyBf16(int64_t steps) {
  __m512 sums[kSums];
  const auto x = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f003f00));  // pairs of 0.5
  for (auto& sum : sums) sum = _mm512_set1_ps(static_cast<float>(steps));
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 16
    for (int k = 0; k < kSums; ++k) sums[k] = _mm512_dpbf16_ps(sums[k], x, x);
  }
  for (int k = 1; k < kSums; ++k) sums[0] = _mm512_add_ps(sums[0], sums[k]);
  return _mm512_cvtss_f32(sums[0]);
}

__attribute__((target("avx512f"))) float Multiply512(int64_t steps) {
  __m512 sums[kSums];
  const __m512 x = _mm512_set1_ps(0.5f);
  for (auto& sum : sums) sum = _mm512_set1_ps(static_cast<float>(steps));
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 16
    for (int k = 0; k < kSums; ++k) sums[k] = _mm512_fmadd_ps(sums[k], x, x);
  }
  for (int k = 1; k < kSums; ++k) sums[0] = _mm512_add_ps(sums[0], sums[k]);
  return _mm512_cvtss_f32(sums[0]);
}

__attribute__((target("avx2,fma"))) float Multiply256(int64_t steps) {
  constexpr int kFew = 14;  // of 16 registers
  __m256 sums[kFew];
  const __m256 x = _mm256_set1_ps(0.5f);
  for (auto& sum : sums) sum = _mm256_set1_ps(static_cast<float>(steps));
  for (int64_t i = 0; i < steps * kSums / kFew; ++i) {
#pragma GCC unroll 14
    for (int k = 0; k < kFew; ++k) sums[k] = _mm256_fmadd_ps(sums[k], x, x);
  }
  for (int k = 1; k < kFew; ++k) sums[0] = _mm256_add_ps(sums[0], sums[k]);
  return _mm256_cvtss_f32(sums[0]);
}

}  // namespace

double MultiplySeconds(int64_t products, kernels::ThreadPool& pool) {
  const kernels::CpuFeatures features = kernels::DetectCpuFeatures();
  const auto multiply = features.avx512_bf16 ? &MultiplyBf16
                        : features.avx512    ? &Multiply512
                                             : &Multiply256;
  const int64_t products_per_step = kSums * (features.avx512_bf16 ? 32 : features.avx512 ? 16 : 8);
  constexpr int64_t kPieces = 256;
  const int64_t steps = products / products_per_step / kPieces + 1;
  std::vector<float> results(pool.threads() * 16);
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  pool.ParallelFor(kPieces, [&](int64_t, int member) { results[member * 16] += multiply(steps); });
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  volatile float kept = results[0];
  static_cast<void>(kept);
  return seconds;
}

}  // namespace tessera::bench
