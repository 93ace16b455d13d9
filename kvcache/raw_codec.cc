#include "kvcache/raw_codec.h"

#include <cstring>

#include "kernels/half_floats.h"

namespace tessera::kvcache {
namespace {

// Calls visit(memory, elements) for each run of the rectangle, in the order of the bytes on the
// way.
template <typename Visit>
void ForEachRun(const KvPool& pool, const IndexRange& layers, const IndexRange& kv_heads,
                std::span<const SlotRun> slots, const Visit& visit) {
  for (int32_t layer = layers.begin; layer < layers.end; ++layer) {
    for (int plane = 0; plane < pool.planes; ++plane) {
      for (int32_t head = kv_heads.begin; head < kv_heads.end; ++head) {
        for (const SlotRun& run : slots) {
          visit(pool.At(layer, plane, head, run.slot), run.tokens * pool.head_dim);
        }
      }
    }
  }
}

float Read(KvType type, const std::byte* from) {
  if (type == KvType::kFloat32) {
    float value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return type == KvType::kBFloat16 ? kernels::ToFloat(kernels::BFloat16{bits})
                                   : kernels::ToFloat(kernels::Float16{bits});
}

void Write(float value, KvType type, std::byte* to) {
  if (type == KvType::kFloat32) {
    std::memcpy(to, &value, sizeof value);
    return;
  }
  const uint16_t bits = type == KvType::kBFloat16
                            ? kernels::FromFloat<kernels::BFloat16>(value).bits
                            : kernels::FromFloat<kernels::Float16>(value).bits;
  std::memcpy(to, &bits, sizeof bits);
}

// `count` elements, converted from one type to the other. The types are constants of the caller, so
// that no element asks for them again.
template <KvType from, KvType to>
void Convert(const std::byte* in, std::byte* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    Write(Read(from, in + i * SizeOf(from)), to, out + i * SizeOf(to));
}

template <KvType from>
void ConvertTo(KvType to, const std::byte* in, std::byte* out, int64_t count) {
  switch (to) {
    case KvType::kFloat32: return Convert<from, KvType::kFloat32>(in, out, count);
    case KvType::kBFloat16: return Convert<from, KvType::kBFloat16>(in, out, count);
    case KvType::kFloat16: return Convert<from, KvType::kFloat16>(in, out, count);
  }
}

}  // namespace

int64_t RawBytes(const IndexRange& layers, const IndexRange& kv_heads, int64_t tokens,
                 int64_t head_dim, KvType type, int planes) {
  return planes * int64_t{layers.size()} * kv_heads.size() * tokens * head_dim * SizeOf(type);
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
    } else if (type == KvType::kFloat32) {
      ConvertTo<KvType::kFloat32>(pool.type, from, memory, elements);
    } else if (type == KvType::kBFloat16) {
      ConvertTo<KvType::kBFloat16>(pool.type, from, memory, elements);
    } else {
      ConvertTo<KvType::kFloat16>(pool.type, from, memory, elements);
    }
    from += elements * SizeOf(type);
  });
}

}  // namespace tessera::kvcache
