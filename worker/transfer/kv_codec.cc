#include "worker/transfer/kv_codec.h"

#include "kvcache/quantised_codec.h"
#include "kvcache/raw_codec.h"
#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

// 0: raw.
int BitsOf(v1::KvCodec codec) {
  if (codec == v1::KV_CODEC_INT8) return 8;
  return codec == v1::KV_CODEC_INT4 ? 4 : 0;
}

}  // namespace

kvcache::IndexRange ToIndexRange(const v1::Range& range) {
  return {static_cast<int32_t>(range.begin()), static_cast<int32_t>(range.end())};
}

v1::DataType ToProto(kvcache::KvType type) {
  switch (type) {
    case kvcache::KvType::kFloat32: return v1::DATA_TYPE_FLOAT32;
    case kvcache::KvType::kBFloat16: return v1::DATA_TYPE_BFLOAT16;
    case kvcache::KvType::kFloat16: return v1::DATA_TYPE_FLOAT16;
    case kvcache::KvType::kInt8: return v1::DATA_TYPE_INT8;
    case kvcache::KvType::kFloat8: return v1::DATA_TYPE_FP8;
  }
  return v1::DATA_TYPE_UNSPECIFIED;
}

absl::StatusOr<kvcache::KvType> ToKvType(v1::DataType dtype) {
  if (dtype == v1::DATA_TYPE_FLOAT32) return kvcache::KvType::kFloat32;
  if (dtype == v1::DATA_TYPE_BFLOAT16) return kvcache::KvType::kBFloat16;
  if (dtype == v1::DATA_TYPE_FLOAT16) return kvcache::KvType::kFloat16;
  if (dtype == v1::DATA_TYPE_INT8) return kvcache::KvType::kInt8;
  if (dtype == v1::DATA_TYPE_FP8) return kvcache::KvType::kFloat8;
  return absl::InvalidArgumentError(StrCat("KV of type ", v1::DataType_Name(dtype)));
}

int64_t TokensPerGroup(v1::KvCodec codec) {
  return BitsOf(codec) == 0 ? 1 : kvcache::kQuantisedGroup;
}

int64_t KvPieceBytes(v1::KvCodec codec, const kvcache::KvShare& part, int64_t tokens,
                     const kvcache::KvPool& pool, kvcache::KvType type) {
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

void DecodeKv(v1::KvCodec codec, std::span<const std::byte> in, kvcache::KvType type,
              const kvcache::KvShare& part, std::span<const kvcache::SlotRun> slots,
              const kvcache::KvPool& pool) {
  const int bits = BitsOf(codec);
  bits == 0 ? kvcache::DecodeRaw(in, type, part.layers, part.kv_heads, slots, pool)
            : kvcache::DecodeQuantised(in, bits, part.layers, part.kv_heads, slots, pool);
}

}  // namespace tessera::worker
