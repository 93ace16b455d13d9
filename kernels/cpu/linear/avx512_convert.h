// Rows of activations between f32 and bf16 with AVX-512. Internal linkage: see panel_block.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

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

}  // namespace
}  // namespace tessera::kernels::cpu::linear
