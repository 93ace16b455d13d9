// Ranges and types of KV, between the wire's messages and the plain structs of kvcache/ and
// kernels/. Thread rule: pure functions.
#pragma once

#include <optional>

#include "kernels/dtype.h"
#include "kvcache/kv_layout.h"
#include "proto/worker.pb.h"

namespace tessera::worker {

IndexRange ToIndexRange(const v1::Range& range);
kvcache::KvShare ToKvShare(const v1::KvShare& share);

// UNSPECIFIED, or nullopt, where the other side has no such type.
v1::DataType ToProto(kernels::DType dtype);
std::optional<kernels::DType> ToDType(v1::DataType dtype);

}  // namespace tessera::worker
