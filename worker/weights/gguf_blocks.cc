#include "worker/weights/gguf_blocks.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/half_floats.h"

namespace tessera::worker {
namespace {

constexpr int kSmall = 32;   // values of a block of the older types
constexpr int kLarge = 256;  // of the K types

int Byte(const std::byte* data, int at) { return std::to_integer<int>(data[at]); }
int SignedByte(const std::byte* data, int at) {
  return static_cast<int8_t>(std::to_integer<uint8_t>(data[at]));
}

// Value i of a block of 32 codes of 4 bits.
int Nibble(const std::byte* codes, int i) { return Byte(codes, i % 16) >> (4 * (i / 16)) & 15; }

void DecodeQ4Zero(const std::byte* block, float* values) {
  const float scale = GgufHalf(block);
  for (int i = 0; i < kSmall; ++i) values[i] = scale * static_cast<float>(Nibble(block + 2, i) - 8);
}

void DecodeQ4One(const std::byte* block, float* values) {
  const float scale = GgufHalf(block), least = GgufHalf(block + 2);
  for (int i = 0; i < kSmall; ++i) {
    values[i] = scale * static_cast<float>(Nibble(block + 4, i)) + least;
  }
}

void DecodeQ8Zero(const std::byte* block, float* values) {
  const float scale = GgufHalf(block);
  for (int i = 0; i < kSmall; ++i) {
    values[i] = scale * static_cast<float>(SignedByte(block, 2 + i));
  }
}

// Scale and minimum of 32 values of a K block: 6 bits each, eight of them in 12 bytes.
std::pair<int, int> SixBits(const std::byte* packed, int group) {
  const int k = group;
  if (k < 4) return {Byte(packed, k) & 63, Byte(packed, k + 4) & 63};
  return {(Byte(packed, k + 4) & 15) | (Byte(packed, k - 4) >> 6 << 4),
          (Byte(packed, k + 4) >> 4) | (Byte(packed, k) >> 6 << 4)};
}

void DecodeQ4K(const std::byte* block, float* values) {
  const float scale = GgufHalf(block), least = GgufHalf(block + 2);
  const std::byte* const codes = block + 16;
  for (int group = 0; group < kLarge / kSmall; ++group) {
    const auto [steps, minimum] = SixBits(block + 4, group);
    const float d = scale * static_cast<float>(steps), m = least * static_cast<float>(minimum);
    for (int i = 0; i < kSmall; ++i) {
      const int code = Byte(codes, 32 * (group / 2) + i) >> (4 * (group % 2)) & 15;
      values[kSmall * group + i] = d * static_cast<float>(code) - m;
    }
  }
}

void DecodeQ6K(const std::byte* block, float* values) {
  const std::byte *const low = block, *const high = block + 128, *const scales = block + 192;
  const float scale = GgufHalf(block + 208);
  for (int i = 0; i < kLarge; ++i) {
    const int half = i / 128, rest = i % 128;
    const int four = Byte(low, 64 * half + rest % 64) >> (4 * (rest / 64)) & 15;
    const int two = Byte(high, 32 * half + rest % 32) >> (2 * (rest / 32)) & 3;
    const float d = scale * static_cast<float>(SignedByte(scales, i / 16));
    values[i] = d * static_cast<float>((four | two << 4) - 32);
  }
}

struct NamedDecoder {
  std::string_view type;
  GgufDecoder decoder;
};

constexpr std::array kDecoders = {NamedDecoder{"Q4_0", DecodeQ4Zero},
                                  NamedDecoder{"Q4_1", DecodeQ4One},
                                  NamedDecoder{"Q8_0", DecodeQ8Zero},
                                  NamedDecoder{"Q4_K", DecodeQ4K}, NamedDecoder{"Q6_K", DecodeQ6K}};

}  // namespace

GgufDecoder FindGgufDecoder(std::string_view type) {
  for (const NamedDecoder& named : kDecoders) {
    if (named.type == type) return named.decoder;
  }
  return nullptr;
}

float GgufHalf(const std::byte* data) {
  uint16_t bits;
  std::memcpy(&bits, data, sizeof(bits));
  return kernels::ToFloat(kernels::Float16{bits});
}

}  // namespace tessera::worker
