#include "kvcache/raw_codec.h"

#include <cstring>
#include <vector>

#include "kvcache/kv_row_floats.h"

namespace tessera::kvcache {
namespace {

// Calls visit(memory, tokens) for each run of the rectangle, in the order of the bytes on the way.
template <typename Visit>
void ForEachRun(const KvPool& pool, const IndexRange& layers, const IndexRange& kv_heads,
                std::span<const SlotRun> slots, const Visit& visit) {
  for (int32_t layer = layers.begin; layer < layers.end; ++layer) {
    for (int plane = 0; plane < pool.planes; ++plane) {
      for (int32_t head = kv_heads.begin; head < kv_heads.end; ++head) {
        for (const SlotRun& run : slots) visit(pool.At(layer, plane, head, run.slot), run.tokens);
      }
    }
  }
}

// Rows of one type to rows of the other. The types are constants of the caller, so that no element
// asks for them again.
template <kernels::DType from, kernels::DType to>
void Convert(const std::byte* in, std::byte* out, int64_t tokens, int64_t head_dim) {
  std::vector<float> row(static_cast<size_t>(head_dim));
  for (int64_t i = 0; i < tokens; ++i) {
    LoadRow<from>(in + i * kernels::KvRowBytes(from, head_dim), head_dim, row.data());
    StoreRow<to>(row.data(), head_dim, out + i * kernels::KvRowBytes(to, head_dim));
  }
}

}  // namespace

int64_t RawBytes(const IndexRange& layers, const IndexRange& kv_heads, int64_t tokens,
                 int64_t head_dim, kernels::DType type, int planes) {
  return planes * layers.size() * kv_heads.size() * tokens * kernels::KvRowBytes(type, head_dim);
}

void EncodeRaw(const KvPool& pool, const IndexRange& layers, const IndexRange& kv_heads,
               std::span<const SlotRun> slots, std::byte* out) {
  ForEachRun(pool, layers, kv_heads, slots, [&](const std::byte* memory, int64_t tokens) {
    const int64_t bytes = tokens * pool.row_bytes();
    std::memcpy(out, memory, static_cast<size_t>(bytes));
    out += bytes;
  });
}

void DecodeRaw(std::span<const std::byte> in, kernels::DType type, const IndexRange& layers,
               const IndexRange& kv_heads, std::span<const SlotRun> slots, const KvPool& pool) {
  const std::byte* from = in.data();
  ForEachRun(pool, layers, kv_heads, slots, [&](std::byte* memory, int64_t tokens) {
    const int64_t bytes = tokens * kernels::KvRowBytes(type, pool.head_dim);
    if (type == pool.type) {
      std::memcpy(memory, from, static_cast<size_t>(bytes));
    } else {
      WithKvType(type, [&](auto sent) {
        WithKvType(pool.type, [&](auto kept) {
          Convert<decltype(sent)::value, decltype(kept)::value>(from, memory, tokens,
                                                                pool.head_dim);
        });
      });
    }
    from += bytes;
  });
}

}  // namespace tessera::kvcache
