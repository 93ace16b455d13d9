// KV rounded to 8 or 4 bits on its way: a part of the bytes, for values that are near the sender's.
//
// Tokens are cut into groups of 64 from the first one sent (the last group may be shorter). In a
// group each channel of a head's keys has a scale and a zero of its own, and so has, of each
// token's values, every run of 64 channels: keys have few channels that are much larger than the
// others, values have none (KIVI, arXiv 2402.02750). An element is zero + scale * code, and at most
// half a scale off, beside what rounding scale and zero to float16 adds.
//
// Bytes on the way: of each layer of a rectangle the keys, then the values; of each plane head by
// head; of each head group by group: float16 scales, float16 zeros, then the codes token by token
// (4 bits: the first of two in the lower half; each group's codes end with a whole byte).
// Little-endian. A group with an element that is not finite arrives as NaN.
//
// Thread rule: pure functions of the memory that they are given; nothing else may write it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/kv_wire.h"
#include "kvcache/kv_layout.h"

namespace tessera::kvcache {

inline constexpr int64_t kQuantisedGroup = kernels::kKvGroup;

// What `tokens` tokens of a rectangle take; `bits` is 8 or 4, `planes` as KvPool has it.
int64_t QuantisedBytes(const IndexRange& layers, const IndexRange& kv_heads, int64_t tokens,
                       int64_t head_dim, int bits, int planes = kKvPlanes);

// Writes the rectangle at `slots` of the pool to `out`, which has room for QuantisedBytes. The
// slots begin with a group's first token.
void EncodeQuantised(const KvPool& pool, const IndexRange& layers, const IndexRange& kv_heads,
                     std::span<const SlotRun> slots, int bits, std::byte* out);

// The reverse: `in` has QuantisedBytes; writes the rectangle at `slots` of the pool, nothing else.
void DecodeQuantised(std::span<const std::byte> in, int bits, const IndexRange& layers,
                     const IndexRange& kv_heads, std::span<const SlotRun> slots,
                     const KvPool& pool);

}  // namespace tessera::kvcache
