#include "worker/transfer/kv_codec.h"

#include "kvcache/quantised_codec.h"
#include "kvcache/raw_codec.h"

namespace tessera::worker {
namespace {

// 0: raw.
int BitsOf(v1::KvCodec codec) {
  if (codec == v1::KV_CODEC_INT8) return 8;
  return codec == v1::KV_CODEC_INT4 ? 4 : 0;
}

}  // namespace

int64_t TokensPerGroup(v1::KvCodec codec) {
  return BitsOf(codec) == 0 ? 1 : kvcache::kQuantisedGroup;
}

int64_t KvPieceBytes(v1::KvCodec codec, const kvcache::KvShare& part, int64_t tokens,
                     const kvcache::KvPool& pool, kernels::DType type) {
  const int bits = BitsOf(codec);
  if (bits == 0) {
    return kvcache::RawBytes(part.layers, part.kv_heads, tokens, pool.head_dim, type, pool.planes);
  }
  return kvcache::QuantisedBytes(part.layers, part.kv_heads, tokens, pool.head_dim, bits,
                                 pool.planes);
}

void EncodeKv(v1::KvCodec codec, const kvcache::KvPool& pool, const kvcache::KvShare& part,
              std::span<const kvcache::SlotRun> slots, std::byte* out) {
  const int bits = BitsOf(codec);
  bits == 0 ? kvcache::EncodeRaw(pool, part.layers, part.kv_heads, slots, out)
            : kvcache::EncodeQuantised(pool, part.layers, part.kv_heads, slots, bits, out);
}

void DecodeKv(v1::KvCodec codec, std::span<const std::byte> in, kernels::DType type,
              const kvcache::KvShare& part, std::span<const kvcache::SlotRun> slots,
              const kvcache::KvPool& pool) {
  const int bits = BitsOf(codec);
  bits == 0 ? kvcache::DecodeRaw(in, type, part.layers, part.kv_heads, slots, pool)
            : kvcache::DecodeQuantised(in, bits, part.layers, part.kv_heads, slots, pool);
}

}  // namespace tessera::worker
