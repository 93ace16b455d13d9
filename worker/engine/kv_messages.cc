#include "worker/engine/kv_messages.h"

namespace tessera::worker {
namespace {

using kernels::DType;

struct SameType {
  DType dtype;
  v1::DataType wire;
};
constexpr SameType kTypes[] = {{DType::kF32, v1::DATA_TYPE_FLOAT32},
                               {DType::kBF16, v1::DATA_TYPE_BFLOAT16},
                               {DType::kF16, v1::DATA_TYPE_FLOAT16},
                               {DType::kI8, v1::DATA_TYPE_INT8},
                               {DType::kF8, v1::DATA_TYPE_FP8}};

}  // namespace

IndexRange ToIndexRange(const v1::Range& range) { return {range.begin(), range.end()}; }

kvcache::KvShare ToKvShare(const v1::KvShare& share) {
  return {ToIndexRange(share.layers()), ToIndexRange(share.kv_heads()),
          ToIndexRange(share.key_groups())};
}

v1::DataType ToProto(DType dtype) {
  for (const SameType& type : kTypes) {
    if (type.dtype == dtype) return type.wire;
  }
  return v1::DATA_TYPE_UNSPECIFIED;
}

std::optional<DType> ToDType(v1::DataType dtype) {
  for (const SameType& type : kTypes) {
    if (type.wire == dtype) return type.dtype;
  }
  return std::nullopt;
}

}  // namespace tessera::worker
