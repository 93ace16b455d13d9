// KV as it stands in the pool, element for element: the codec that loses nothing.
//
// Bytes on the way: of each layer of a rectangle the keys, then the values; of each plane head by
// head; of each head token by token, head_dim elements of the sender's type, little-endian; of
// int8 and float8 rows of codes with a scale (kernels/kv_rows.h). A receiver of another type
// converts: bfloat16 to float32 keeps the value, float32 to bfloat16 rounds to the nearest, ties to
// even; codes become the elements that they stand for, elements become the nearest codes.
//
// Thread rule: pure functions of the memory that they are given; nothing else may write it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvcache/kv_layout.h"

namespace tessera::kvcache {

// What `tokens` tokens of a rectangle take; `planes` as KvPool has it.
int64_t RawBytes(const IndexRange& layers, const IndexRange& kv_heads, int64_t tokens,
                 int64_t head_dim, kernels::DType type, int planes = kKvPlanes);

// Writes the rectangle's elements at `slots` of the pool to `out`, which has room for RawBytes.
void EncodeRaw(const KvPool& pool, const IndexRange& layers, const IndexRange& kv_heads,
               std::span<const SlotRun> slots, std::byte* out);

// The reverse: `in` holds elements of `type`; writes the rectangle at `slots` of the pool, nothing
// else.
void DecodeRaw(std::span<const std::byte> in, kernels::DType type, const IndexRange& layers,
               const IndexRange& kv_heads, std::span<const SlotRun> slots, const KvPool& pool);

}  // namespace tessera::kvcache
