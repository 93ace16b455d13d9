// How many bytes keys and values take on their way to another replica, by coding. The layout of the
// bytes: kvcache/raw_codec.h and kvcache/quantised_codec.h.
//
// A line is one head of a plane: the keys, or the values, of a run of tokens. Thread rule: pure
// functions.
#pragma once

#include <cstdint>

namespace tessera::kernels {

enum class KvWireCoding : uint8_t { kRaw, kInt8, kInt4 };

inline constexpr int64_t kKvGroup = 64;  // tokens, or channels of values

constexpr int CodeBits(KvWireCoding coding) { return coding == KvWireCoding::kInt8 ? 8 : 4; }

// Runs of channels of a token's values that have a scale of their own.
constexpr int64_t ValueChunks(int64_t head_dim) { return (head_dim + kKvGroup - 1) / kKvGroup; }

// Scales of a group of at most kKvGroup tokens; it has as many zeros.
constexpr int64_t KvGroupScales(bool values, int64_t tokens, int64_t head_dim) {
  return values ? tokens * ValueChunks(head_dim) : head_dim;
}

// Bytes of such a group, for int8 and int4: float16 scales, float16 zeros, codes.
constexpr int64_t KvGroupBytes(bool values, int64_t tokens, int64_t head_dim, KvWireCoding coding) {
  return KvGroupScales(values, tokens, head_dim) * 4 +
         (tokens * head_dim * CodeBits(coding) + 7) / 8;
}

// Bytes of a line; raw elements have `element_bytes`.
constexpr int64_t KvLineBytes(bool values, int64_t tokens, int64_t head_dim, KvWireCoding coding,
                              int64_t element_bytes) {
  if (coding == KvWireCoding::kRaw) return tokens * head_dim * element_bytes;
  const int64_t rest = tokens % kKvGroup;
  return tokens / kKvGroup * KvGroupBytes(values, kKvGroup, head_dim, coding) +
         (rest > 0 ? KvGroupBytes(values, rest, head_dim, coding) : 0);
}

// Bytes of `planes` planes, keys and values by turns, of `kv_heads` lines each.
constexpr int64_t KvPlanesBytes(bool values_first, int64_t planes, int64_t kv_heads, int64_t tokens,
                                int64_t head_dim, KvWireCoding coding, int64_t element_bytes) {
  const int64_t first = (planes + 1) / 2, second = planes / 2;
  return kv_heads * (first * KvLineBytes(values_first, tokens, head_dim, coding, element_bytes) +
                     second * KvLineBytes(!values_first, tokens, head_dim, coding, element_bytes));
}

}  // namespace tessera::kernels
