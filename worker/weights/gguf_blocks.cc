#include "worker/weights/gguf_blocks.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/half_floats.h"

namespace tessera::worker {
namespace {

using kernels::DType;

constexpr int kSmall = 32;   // values of a block of the older types
constexpr int kLarge = 256;  // of the K types

int Byte(const std::byte* data, int at) { return std::to_integer<int>(data[at]); }
int SignedByte(const std::byte* data, int at) {
  return static_cast<int8_t>(std::to_integer<uint8_t>(data[at]));
}

// Value i of a block of 32 codes of 4 bits.
int Nibble(const std::byte* codes, int i) { return Byte(codes, i % 16) >> (4 * (i / 16)) & 15; }

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
  constexpr uint16_t kSign = 0x8000;  // the minimum is taken off
  out->pair = {{HalfBits(block)}, {static_cast<uint16_t>(HalfBits(block + 2) ^ kSign)}};
  const std::byte* const codes = block + 16;
  for (int group = 0; group < kLarge / kSmall; ++group) {
    out->steps[group] = SixBits(block + 4, group);
    for (int i = 0; i < kSmall; ++i) {
      const int code = Byte(codes, 32 * (group / 2) + i) >> (4 * (group % 2)) & 15;
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
    NamedType{"Q4_0", {.dtype = DType::kI4, .group = 32, .read = ReadQ4Zero}},
    NamedType{"Q4_1", {.dtype = DType::kI4, .group = 32, .pair_values = 32, .read = ReadQ4One}},
    NamedType{"Q8_0", {.dtype = DType::kI8, .group = 32, .read = ReadQ8Zero}},
    NamedType{"Q4_K", {.dtype = DType::kI4, .group = 32, .pair_values = 256, .read = ReadQ4K}},
    NamedType{"Q6_K", {.dtype = DType::kI8, .group = 16, .read = ReadQ6K}}};

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
  const int zero = type.dtype == DType::kI4 ? static_cast<int>(kGgufZero) : 0;
  return codes.scales[group] * static_cast<float>(codes.codes[i] - zero);
}

bool HasFiniteScales(const GgufCodeType& type, const GgufCodes& codes, int group) {
  return type.pair_values > 0 ? std::isfinite(kernels::ToFloat(codes.pair.scale)) &&
                                    std::isfinite(kernels::ToFloat(codes.pair.offset))
                              : std::isfinite(codes.scales[group]);
}

}  // namespace tessera::worker
