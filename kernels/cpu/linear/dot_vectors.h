// AVX512_BF16 for panel_block.h: a step multiplies pairs of bf16 (vdpbf16ps: even and odd product
// added to an f32 sum; subnormals count as zero). i8 and f8 weights become bf16 exactly, through
// two tables of 128 bytes that AVX512_VBMI looks up 64 at a time. Internal linkage: see
// panel_block.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/linear/avx512_vectors.h"

namespace tessera::kernels::cpu::linear {
namespace {

struct DotStep {
  using Vectors = Avx512Vectors;
  using Operand = __m512i;
  static constexpr int kMaxRows = 12;
  static constexpr int kVectors = 2;
  static constexpr int kWords = 1;

  static Operand Broadcast(const uint32_t* word) {
    return _mm512_set1_epi32(static_cast<int>(*word));
  }
  static __m512 MultiplyAdd(__m512 sum, Operand w, Operand a) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(a));
  }
};

struct DotBf16 : DotStep {
  static constexpr int kBytes = 128;
  static void Load(const std::byte* weights, int, Operand (&out)[kVectors]) {
    out[0] = _mm512_loadu_si512(weights);
    out[1] = _mm512_loadu_si512(weights + 64);
  }
};

// To what DotBf16 reads.
template <typename Step>
void WidenToBf16(std::byte* out, const std::byte* weights, int64_t steps) {
  for (int64_t step = 0; step < steps; ++step) {
    for (int word = 0; word < Step::kWords; ++word) {
      typename Step::Operand pairs[Step::kVectors];
      Step::Load(weights + step * Step::kBytes, word, pairs);
      _mm512_store_si512(out, pairs[0]);
      _mm512_store_si512(out + 64, pairs[1]);
      out += DotBf16::kBytes;
    }
  }
}

// High or low bytes of the bf16 numbers 0 to 127.
struct MagnitudeTable {
  uint8_t bytes[128];
};

constexpr MagnitudeTable MakeTable(int shift) {
  MagnitudeTable table{};
  for (unsigned value = 1; value < 128; ++value) {
    unsigned exponent = 0;
    while ((value >> (exponent + 1)) != 0) ++exponent;
    const unsigned mantissa = (value << (7 - exponent)) & 0x7f;
    table.bytes[value] = static_cast<uint8_t>((((127 + exponent) << 7) | mantissa) >> shift);
  }
  return table;
}

alignas(64) constexpr MagnitudeTable kHighBytes = MakeTable(8);
alignas(64) constexpr MagnitudeTable kLowBytes = MakeTable(0);

// High or low bytes of the bf16 numbers that e4m3 magnitudes are.
constexpr MagnitudeTable MakeF8Table(int shift) {
  MagnitudeTable table{};
  for (unsigned value = 1; value < 128; ++value) {
    const unsigned exponent = value >> 3, mantissa = value & 7;
    if (exponent > 0) {
      table.bytes[value] =
          static_cast<uint8_t>((((120 + exponent) << 7) | (mantissa << 4)) >> shift);
      continue;
    }
    const unsigned top = mantissa >= 4 ? 2 : mantissa >= 2 ? 1 : 0;  // mantissa * 2^-9
    const unsigned rest = (mantissa << (7 - top)) & 0x7f;
    table.bytes[value] = static_cast<uint8_t>((((118 + top) << 7) | rest) >> shift);
  }
  return table;
}

alignas(64) constexpr MagnitudeTable kF8HighBytes = MakeF8Table(8);
alignas(64) constexpr MagnitudeTable kF8LowBytes = MakeF8Table(0);

// Codes of sign and magnitude.
template <const MagnitudeTable& kHigh, const MagnitudeTable& kLow>
struct DotCodes : DotStep {
  static constexpr int kMaxRows = 8;  // the tables need registers too
  static constexpr int kBytes = 64;
  static void Load(const std::byte* weights, int, Operand (&out)[kVectors]) {
    const __m512i codes = _mm512_loadu_si512(weights);
    const __m512i magnitude_high = _mm512_permutex2var_epi8(_mm512_load_si512(kHigh.bytes), codes,
                                                            _mm512_load_si512(kHigh.bytes + 64));
    const __m512i low = _mm512_permutex2var_epi8(_mm512_load_si512(kLow.bytes), codes,
                                                 _mm512_load_si512(kLow.bytes + 64));
    constexpr int kFirstOrBoth = 0xf8;  // a | (b & c)
    const __m512i high =
        _mm512_ternarylogic_epi32(magnitude_high, codes, _mm512_set1_epi8(-128), kFirstOrBoth);
    out[0] = _mm512_unpacklo_epi8(low, high);
    out[1] = _mm512_unpackhi_epi8(low, high);
  }
  static void Widen(std::byte* out, const std::byte* weights, int64_t steps) {
    WidenToBf16<DotCodes>(out, weights, steps);
  }
};
using DotI8 = DotCodes<kHighBytes, kLowBytes>;
using DotF8 = DotCodes<kF8HighBytes, kF8LowBytes>;

// Codes of 4 bits, without a zero: two pairs of inputs in the halves of bytes. A table of 16 is
// looked up in each lane by itself.
struct DotNibbles : DotStep {
  static constexpr int kMaxRows = 8;
  static constexpr int kBytes = 64, kWords = 2;
  static void Load(const std::byte* weights, int word, Operand (&out)[kVectors]) {
    const __m512i both = _mm512_loadu_si512(weights);
    const __m512i codes =
        _mm512_and_si512(word == 0 ? both : _mm512_srli_epi16(both, 4), _mm512_set1_epi8(0xf));
    const __m512i high = _mm512_shuffle_epi8(FirstSixteen(kHighBytes), codes);
    const __m512i low = _mm512_shuffle_epi8(FirstSixteen(kLowBytes), codes);
    out[0] = _mm512_unpacklo_epi8(low, high);
    out[1] = _mm512_unpackhi_epi8(low, high);
  }
  static void Widen(std::byte* out, const std::byte* weights, int64_t steps) {
    WidenToBf16<DotNibbles>(out, weights, steps);
  }

 private:
  static __m512i FirstSixteen(const MagnitudeTable& table) {
    return _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(table.bytes)));
  }
};

// The weights of `Dot` with f32 activations: its bf16 numbers, exact, are the upper halves of f32.
template <typename Dot>
struct SplitCodes : Avx512Step {
  static constexpr int kMaxRows = 8;
  static constexpr int kBytes = 64, kWords = 2 * Dot::kWords;
  static void Load(const std::byte* weights, int word, Operand (&out)[kVectors]) {
    __m512i pairs[kVectors];
    Dot::Load(weights, word / 2, pairs);
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000));
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      out[v] = _mm512_castsi512_ps(word % 2 == 0 ? _mm512_slli_epi32(pairs[v], 16)
                                                 : _mm512_and_si512(pairs[v], high));
    }
  }
  static void Widen(std::byte* out, const std::byte* weights, int64_t steps) {
    WidenSteps512<SplitCodes>(out, weights, steps);
  }
};
using SplitI8 = SplitCodes<DotI8>;
using SplitF8 = SplitCodes<DotF8>;
using SplitNibbles = SplitCodes<DotNibbles>;

}  // namespace
}  // namespace tessera::kernels::cpu::linear
