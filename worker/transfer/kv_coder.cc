#include "worker/transfer/kv_coder.h"

#include "worker/transfer/kv_codec.h"

namespace tessera::worker {
namespace {

class Host final : public KvCoder {
 public:
  absl::Status Encode(v1::KvCodec codec, const kvcache::KvPool& pool, const kvcache::KvShare& part,
                      std::span<const kvcache::SlotRun> slots, std::span<std::byte> out) override {
    EncodeKv(codec, pool, part, slots, out.data());
    return absl::OkStatus();
  }
  absl::Status Decode(v1::KvCodec codec, std::span<const std::byte> in, kernels::DType type,
                      const kvcache::KvShare& part, std::span<const kvcache::SlotRun> slots,
                      const kvcache::KvPool& pool) override {
    DecodeKv(codec, in, type, part, slots, pool);
    return absl::OkStatus();
  }
  // The device is the host's own.
  absl::Status EncodeOnDevice(v1::KvCodec codec, const kvcache::KvPool& pool,
                              const kvcache::KvShare& part, std::span<const kvcache::SlotRun> slots,
                              std::span<std::byte> out) override {
    return Encode(codec, pool, part, slots, out);
  }
  absl::Status DecodeOnDevice(v1::KvCodec codec, std::span<const std::byte> in, kernels::DType type,
                              const kvcache::KvShare& part, std::span<const kvcache::SlotRun> slots,
                              const kvcache::KvPool& pool) override {
    return Decode(codec, in, type, part, slots, pool);
  }
  bool stages() const override { return false; }
};

}  // namespace

KvCoder& HostKvCoder() {
  static Host host;
  return host;
}

KvCoder& CoderOf(const kvcache::KvPool& pool, KvCoder* coder) {
  return pool.in_host_memory ? HostKvCoder() : *coder;
}

}  // namespace tessera::worker
