#include "worker/weights/gguf_blocks.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/half_floats.h"

namespace tessera::worker {
namespace {

using kernels::DType;

constexpr int kSmall = 32;   // values of a block of the older types
constexpr int kLarge = 256;  // of the K types

int Byte(const std::byte* data, int at) { return std::to_integer<int>(data[at]); }
int HalfOfByte(const std::byte* data, int at, int half) {
  return Byte(data, at) >> (4 * half) & 15;
}
int SignedByte(const std::byte* data, int at) {
  return static_cast<int8_t>(std::to_integer<uint8_t>(data[at]));
}

// Value i of a block of 32 codes of 4 bits.
int Nibble(const std::byte* codes, int i) { return HalfOfByte(codes, i % 16, i / 16); }

uint16_t HalfBits(const std::byte* data) {
  uint16_t bits;
  std::memcpy(&bits, data, sizeof(bits));
  return bits;
}

float Half(const std::byte* data) { return kernels::ToFloat(kernels::Float16{HalfBits(data)}); }

void ReadNibbles(const std::byte* in, GgufCodes* out) {
  for (int i = 0; i < kSmall; ++i) out->codes[i] = static_cast<int8_t>(Nibble(in, i));
}

void ReadQ4Zero(const std::byte* block, GgufCodes* out) {
  out->scales[0] = Half(block);
  ReadNibbles(block + 2, out);
}

void ReadQ4One(const std::byte* block, GgufCodes* out) {
  out->pair = {{HalfBits(block)}, {HalfBits(block + 2)}};
  ReadNibbles(block + 4, out);
}

void ReadQ8Zero(const std::byte* block, GgufCodes* out) {
  out->scales[0] = Half(block);
  std::memcpy(out->codes.data(), block + 2, kSmall);
}

// Value i of a block of 32 codes of 5 bits: `fifths` are their highest bits, in 4 bytes.
int FiveBits(const std::byte* fifths, const std::byte* codes, int i) {
  return Nibble(codes, i) | (Byte(fifths, i / 8) >> (i % 8) & 1) << 4;
}

void ReadQ5Zero(const std::byte* block, GgufCodes* out) {
  constexpr int kZero = 16;
  out->scales[0] = Half(block);
  for (int i = 0; i < kSmall; ++i) {
    out->codes[i] = static_cast<int8_t>(FiveBits(block + 2, block + 6, i) - kZero);
  }
}

void ReadQ5One(const std::byte* block, GgufCodes* out) {
  out->pair = {{HalfBits(block)}, {HalfBits(block + 2)}};
  for (int i = 0; i < kSmall; ++i) {
    out->codes[i] = static_cast<int8_t>(FiveBits(block + 4, block + 8, i));
  }
}

// Places in a table of values that are denser about 0.
constexpr std::array<int8_t, 16> kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};

void ReadIq4Nl(const std::byte* block, GgufCodes* out) {
  out->scales[0] = Half(block);
  for (int i = 0; i < kSmall; ++i) out->codes[i] = kIq4Values[Nibble(block + 2, i)];
}

void ReadIq4Xs(const std::byte* block, GgufCodes* out) {
  constexpr int kZero = 32;
  const float scale = Half(block);
  const int high = Byte(block, 2) | Byte(block, 3) << 8;
  for (int group = 0; group < kLarge / kSmall; ++group) {
    const int step = HalfOfByte(block + 4, group / 2, group % 2) | (high >> (2 * group) & 3) << 4;
    out->scales[group] = scale * static_cast<float>(step - kZero);
    for (int i = 0; i < kSmall; ++i) {
      out->codes[kSmall * group + i] = kIq4Values[Nibble(block + 8 + 16 * group, i)];
    }
  }
}

// Twice e2m1, with the scale half of what the exponent says.
void ReadMxfp4Block(const std::byte* block, GgufCodes* out) {
  constexpr std::array<int8_t, 16> kValues = {0, 1,  2,  3,  4,  6,  8,  12,
                                              0, -1, -2, -3, -4, -6, -8, -12};
  constexpr int kNoNumber = 255;
  const int exponent = Byte(block, 0);
  out->scales[0] = exponent == kNoNumber ? std::numeric_limits<float>::quiet_NaN()
                                         : std::ldexp(1.0f, exponent - 128);
  for (int i = 0; i < kSmall; ++i) out->codes[i] = kValues[Nibble(block + 1, i)];
}

// Bits 2 * (i % 128 / 32) of byte 32 * (i / 128) + i % 32.
int TwoBits(const std::byte* codes, int i) {
  return Byte(codes, 32 * (i / 128) + i % 32) >> (2 * (i % 128 / 32)) & 3;
}

constexpr uint16_t kSign = 0x8000;  // minima are taken off

void ReadQ2K(const std::byte* block, GgufCodes* out) {
  const std::byte* const halves = block + 80;
  out->pair = {{HalfBits(halves)}, {static_cast<uint16_t>(HalfBits(halves + 2) ^ kSign)}};
  for (int group = 0; group < 16; ++group) {
    out->steps[group] = {static_cast<int8_t>(HalfOfByte(block, group, 0)),
                         static_cast<int8_t>(HalfOfByte(block, group, 1))};
  }
  for (int i = 0; i < kLarge; ++i) out->codes[i] = static_cast<int8_t>(TwoBits(block + 16, i));
}

// The third bit of code i is bit i / 32 of byte i % 32.
// Scales have 17 bits; a word of kernels/int4_rows.h keeps 20.
void ReadQ3K(const std::byte* block, GgufCodes* out) {
  constexpr int kZero = 32;
  const std::byte *const codes = block + 32, *const steps = block + 96;
  const float scale = Half(block + 108);
  for (int group = 0; group < 16; ++group) {
    const int high = Byte(steps, 8 + group % 4) >> (2 * (group / 4)) & 3;
    const int step = HalfOfByte(steps, group % 8, group / 8) | high << 4;
    out->scales[group] = scale * static_cast<float>(step - kZero);
  }
  for (int i = 0; i < kLarge; ++i) {
    const int third = Byte(block, i % 32) >> (i / 32) & 1;
    out->codes[i] = static_cast<int8_t>(TwoBits(codes, i) | third << 2);
  }
}

// Scale and minimum of 32 values of a K block: 6 bits each, eight of them in 12 bytes.
kernels::Int4Steps SixBits(const std::byte* packed, int group) {
  const int k = group;
  const int scale =
      k < 4 ? Byte(packed, k) & 63 : (Byte(packed, k + 4) & 15) | (Byte(packed, k - 4) >> 6 << 4);
  const int minimum =
      k < 4 ? Byte(packed, k + 4) & 63 : (Byte(packed, k + 4) >> 4) | (Byte(packed, k) >> 6 << 4);
  return {static_cast<int8_t>(scale), static_cast<int8_t>(minimum)};
}

void ReadQ4K(const std::byte* block, GgufCodes* out) {
  out->pair = {{HalfBits(block)}, {static_cast<uint16_t>(HalfBits(block + 2) ^ kSign)}};
  const std::byte* const codes = block + 16;
  for (int group = 0; group < kLarge / kSmall; ++group) {
    out->steps[group] = SixBits(block + 4, group);
    for (int i = 0; i < kSmall; ++i) {
      const int code = HalfOfByte(codes, 32 * (group / 2) + i, group % 2);
      out->codes[kSmall * group + i] = static_cast<int8_t>(code);
    }
  }
}

void ReadQ5K(const std::byte* block, GgufCodes* out) {
  out->pair = {{HalfBits(block)}, {static_cast<uint16_t>(HalfBits(block + 2) ^ kSign)}};
  const std::byte *const fifths = block + 16, *const codes = block + 48;
  for (int group = 0; group < kLarge / kSmall; ++group) {
    out->steps[group] = SixBits(block + 4, group);
    for (int i = 0; i < kSmall; ++i) {
      const int fifth = Byte(fifths, i) >> group & 1;
      const int code = HalfOfByte(codes, 32 * (group / 2) + i, group % 2) | fifth << 4;
      out->codes[kSmall * group + i] = static_cast<int8_t>(code);
    }
  }
}

void ReadQ6K(const std::byte* block, GgufCodes* out) {
  const std::byte *const low = block, *const high = block + 128, *const scales = block + 192;
  const float scale = Half(block + 208);
  for (int group = 0; group < kLarge / 16; ++group) {
    out->scales[group] = scale * static_cast<float>(SignedByte(scales, group));
  }
  for (int i = 0; i < kLarge; ++i) {
    const int half = i / 128, rest = i % 128;
    const int four = Byte(low, 64 * half + rest % 64) >> (4 * (rest / 64)) & 15;
    const int two = Byte(high, 32 * half + rest % 32) >> (2 * (rest / 32)) & 3;
    out->codes[i] = static_cast<int8_t>((four | two << 4) - 32);
  }
}

struct NamedType {
  std::string_view name;
  GgufCodeType type;
};

constexpr std::array kTypes = {
    NamedType{"Q4_0", {.dtype = DType::kI4, .group = 32, .zero = 8, .read = ReadQ4Zero}},
    NamedType{"Q4_1", {.dtype = DType::kI4, .group = 32, .pair_values = 32, .read = ReadQ4One}},
    NamedType{"Q5_0", {.dtype = DType::kI8, .group = 32, .read = ReadQ5Zero}},
    NamedType{"Q5_1", {.dtype = DType::kF32, .group = 32, .pair_values = 32, .read = ReadQ5One}},
    NamedType{"Q8_0", {.dtype = DType::kI8, .group = 32, .read = ReadQ8Zero}},
    NamedType{"IQ4_NL", {.dtype = DType::kI8, .group = 32, .read = ReadIq4Nl}},
    NamedType{"MXFP4", {.dtype = DType::kI8, .group = 32, .read = ReadMxfp4Block}},
    NamedType{"Q2_K", {.dtype = DType::kI4, .group = 16, .pair_values = 256, .read = ReadQ2K}},
    NamedType{"Q3_K", {.dtype = DType::kI4, .group = 16, .zero = 4, .read = ReadQ3K}},
    NamedType{"Q4_K", {.dtype = DType::kI4, .group = 32, .pair_values = 256, .read = ReadQ4K}},
    NamedType{"Q5_K", {.dtype = DType::kF32, .group = 32, .pair_values = 256, .read = ReadQ5K}},
    NamedType{"Q6_K", {.dtype = DType::kI8, .group = 16, .read = ReadQ6K}},
    NamedType{"IQ4_XS", {.dtype = DType::kI8, .group = 32, .read = ReadIq4Xs}}};

}  // namespace

const GgufCodeType* FindGgufCodeType(std::string_view name) {
  for (const NamedType& named : kTypes) {
    if (named.name == name) return &named.type;
  }
  return nullptr;
}

float GgufValue(const GgufCodeType& type, const GgufCodes& codes, int i) {
  const int group = i / type.group;
  if (type.pair_values > 0) {
    return kernels::Int4Place{codes.pair, codes.steps[group]}.Weight(codes.codes[i]);
  }
  return codes.scales[group] * static_cast<float>(codes.codes[i] - type.zero);
}

bool HasFiniteScales(const GgufCodeType& type, const GgufCodes& codes, int group) {
  return type.pair_values > 0 ? std::isfinite(kernels::ToFloat(codes.pair.scale)) &&
                                    std::isfinite(kernels::ToFloat(codes.pair.offset))
                              : std::isfinite(codes.scales[group]);
}

}  // namespace tessera::worker
