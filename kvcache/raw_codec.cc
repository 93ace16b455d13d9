#include "kvcache/raw_codec.h"

#include <cstring>

namespace tessera::kvcache {
namespace {

// Calls visit(memory, elements) for each run of the rectangle, in the order of the bytes on the
// way.
template <typename Visit>
void ForEachRun(const KvPool& pool, const IndexRange& layers, const IndexRange& kv_heads,
                std::span<const SlotRun> slots, const Visit& visit) {
  for (int32_t layer = layers.begin; layer < layers.end; ++layer) {
    for (const int plane : {0, 1}) {
      for (int32_t head = kv_heads.begin; head < kv_heads.end; ++head) {
        for (const SlotRun& run : slots) {
          visit(pool.At(layer, plane, head, run.slot), run.tokens * pool.head_dim);
        }
      }
    }
  }
}

float ToFloat(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

uint16_t ToBFloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);  // NaN
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// `count` elements, converted from one type to the other.
template <typename From, typename To, To (*convert)(From)>
void Convert(const std::byte* in, std::byte* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    From from;
    std::memcpy(&from, in + i * int64_t{sizeof from}, sizeof from);
    const To to = convert(from);
    std::memcpy(out + i * int64_t{sizeof to}, &to, sizeof to);
  }
}

}  // namespace

int64_t RawBytes(const IndexRange& layers, const IndexRange& kv_heads, int64_t tokens,
                 int64_t head_dim, KvType type) {
  return 2 * int64_t{layers.size()} * kv_heads.size() * tokens * head_dim * SizeOf(type);
}

void EncodeRaw(const KvPool& pool, const IndexRange& layers, const IndexRange& kv_heads,
               std::span<const SlotRun> slots, std::byte* out) {
  ForEachRun(pool, layers, kv_heads, slots, [&](const std::byte* memory, int64_t elements) {
    const int64_t bytes = elements * SizeOf(pool.type);
    std::memcpy(out, memory, static_cast<size_t>(bytes));
    out += bytes;
  });
}

void DecodeRaw(std::span<const std::byte> in, KvType type, const IndexRange& layers,
               const IndexRange& kv_heads, std::span<const SlotRun> slots, const KvPool& pool) {
  const std::byte* from = in.data();
  ForEachRun(pool, layers, kv_heads, slots, [&](std::byte* memory, int64_t elements) {
    if (type == pool.type) {
      std::memcpy(memory, from, static_cast<size_t>(elements * SizeOf(type)));
    } else if (type == KvType::kBFloat16) {
      Convert<uint16_t, float, ToFloat>(from, memory, elements);
    } else {
      Convert<float, uint16_t, ToBFloat16>(from, memory, elements);
    }
    from += elements * SizeOf(type);
  });
}

}  // namespace tessera::kvcache
