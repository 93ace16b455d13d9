// Who reads a worker's pool for the wire, and writes what came into it: the host itself where the
// pool is its memory (HostKvCoder), the device's kernels where it is not (worker/transfer/
// staged_kv_coder.h).
//
// Thread rule: any thread; calls return when the bytes are there. Nothing else may write what is
// read, or use what is written, meanwhile. Every wait is bounded.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "kvcache/kv_layout.h"
#include "proto/worker.pb.h"

namespace tessera::worker {

class KvCoder {
 public:
  virtual ~KvCoder() = default;
  // `out` has KvPieceBytes (worker/transfer/kv_codec.h).
  virtual absl::Status Encode(v1::KvCodec codec, const kvcache::KvPool& pool,
                              const kvcache::KvShare& part, std::span<const kvcache::SlotRun> slots,
                              std::span<std::byte> out) = 0;
  // `in` has KvPieceBytes; elements that travelled raw are of `type`. OK: all of it is written.
  virtual absl::Status Decode(v1::KvCodec codec, std::span<const std::byte> in, kernels::DType type,
                              const kvcache::KvShare& part, std::span<const kvcache::SlotRun> slots,
                              const kvcache::KvPool& pool) = 0;
  // The same with bytes in the memory of the pool's device.
  virtual absl::Status EncodeOnDevice(v1::KvCodec codec, const kvcache::KvPool& pool,
                                      const kvcache::KvShare& part,
                                      std::span<const kvcache::SlotRun> slots,
                                      std::span<std::byte> out) = 0;
  virtual absl::Status DecodeOnDevice(v1::KvCodec codec, std::span<const std::byte> in,
                                      kernels::DType type, const kvcache::KvShare& part,
                                      std::span<const kvcache::SlotRun> slots,
                                      const kvcache::KvPool& pool) = 0;
  // Whether KV passes, but for the two calls before, through host memory that is neither the pool's
  // nor the link's.
  virtual bool stages() const = 0;
};

// One for all; it never fails.
KvCoder& HostKvCoder();
// Who reads and writes this pool: `coder`, unless it is in the host's memory.
KvCoder& CoderOf(const kvcache::KvPool& pool, KvCoder* coder);

}  // namespace tessera::worker
