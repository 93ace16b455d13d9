// The codecs of KV on its way (v1::KvCodec), chosen by name.
//
// Thread rule: pure functions of the memory that they are given; nothing else may write it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvcache/kv_layout.h"
#include "proto/worker.pb.h"

namespace tessera::worker {

// Pieces in `codec` begin so many tokens, or a multiple, behind the first one sent.
int64_t TokensPerGroup(v1::KvCodec codec);

// What `tokens` tokens of a rectangle of `pool` take, whose elements are of `type` where they
// travel raw.
int64_t KvPieceBytes(v1::KvCodec codec, const kvcache::KvShare& part, int64_t tokens,
                     const kvcache::KvPool& pool, kernels::DType type);
// `out` has room for KvPieceBytes.
void EncodeKv(v1::KvCodec codec, const kvcache::KvPool& pool, const kvcache::KvShare& part,
              std::span<const kvcache::SlotRun> slots, std::byte* out);
// `in` has KvPieceBytes; elements that travelled raw are of `type`.
void DecodeKv(v1::KvCodec codec, std::span<const std::byte> in, kernels::DType type,
              const kvcache::KvShare& part, std::span<const kvcache::SlotRun> slots,
              const kvcache::KvPool& pool);

}  // namespace tessera::worker
