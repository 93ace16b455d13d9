// Linear panels with AVX2 and FMA. Compiled with -mavx2 -mfma -mf16c.
#include "kernels/cpu/linear/avx2_vectors.h"
#include "kernels/cpu/linear/nibble_panel.h"
#include "kernels/cpu/linear/panel_block.h"

namespace tessera::kernels::cpu::linear {
namespace {

void Widen(float* out, const uint16_t* in_bf16, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in_bf16 + i));
    const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16);
    _mm256_storeu_ps(out + i, _mm256_castsi256_ps(bits));
  }
  for (; i < count; ++i) {
    const uint32_t bits = static_cast<uint32_t>(in_bf16[i]) << 16;
    __builtin_memcpy(out + i, &bits, sizeof(bits));
  }
}

void Narrow(uint16_t* out_bf16, const float* in, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) Avx2Vectors::StoreBf16(out_bf16 + i, _mm256_loadu_ps(in + i));
  if (i == count) return;
  float tail[8] = {};
  uint16_t halves[8];
  __builtin_memcpy(tail, in + i, (count - i) * sizeof(float));
  Avx2Vectors::StoreBf16(halves, _mm256_loadu_ps(tail));
  __builtin_memcpy(out_bf16 + i, halves, (count - i) * sizeof(uint16_t));
}

}  // namespace

const KernelSet kAvx2Kernels = {
    .name = "avx2",
    .f32 = {.run = &RunPanel<Avx2F32>, .pair_words = false, .sign_magnitude = false},
    .bf16 = {.run = &RunPanel<Avx2Bf16>, .pair_words = false, .sign_magnitude = false},
    .i8 = {.run = &RunScaledPanel<Avx2I8, Avx2F32>, .pair_words = false, .sign_magnitude = false},
    .bf16_keeping_f32 = {.run = &RunPanel<Avx2Bf16>, .pair_words = false, .sign_magnitude = false},
    .i8_keeping_f32 = {.run = &RunScaledPanel<Avx2I8, Avx2F32>,
                       .pair_words = false,
                       .sign_magnitude = false},
    .i4 = {.run = &RunNibblePanel<Avx2I8, Avx2F32, false, Avx2Nibbles>,
           .pair_words = false,
           .sign_magnitude = false},
    .i4_keeping_f32 = {.run = &RunNibblePanel<Avx2I8, Avx2F32, false, Avx2Nibbles>,
                       .pair_words = false,
                       .sign_magnitude = false},
    .f8 = {.run = &RunScaledPanel<Avx2F8, Avx2F32>, .pair_words = false, .sign_magnitude = false},
    .f8_keeping_f32 = {.run = &RunScaledPanel<Avx2F8, Avx2F32>,
                       .pair_words = false,
                       .sign_magnitude = false},
    .widen = &Widen,
    .narrow = &Narrow,
};

}  // namespace tessera::kernels::cpu::linear
