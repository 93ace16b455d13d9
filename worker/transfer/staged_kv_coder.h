// Reads and writes the pool of a device whose memory is not the host's: its kernels gather and
// encode into memory of the device, which is copied to pinned memory of the host, and the reverse.
// Where the bytes are to lie on the device, the kernels read and write them there.
//
// There are kLanes of both kinds of memory, each with a stream of its own, so that pieces of
// several connections are under way at once, beside the steps; who finds none waits for one. What
// is longer than a lane goes through it part by part. Keys and values in 8 bits go and come as the
// rows that they are; from or to another type or codec the host turns them. A step's KV must be in
// the pool, and its stream waited for, before it is read (KvWriteListener, worker/model/model.h).
//
// Thread rule: as KvCoder. Ownership: borrows the device. Errors: those of the device's streams;
// one that loses the device fails every later call with its reason.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "worker/transfer/kv_coder.h"

namespace tessera::worker {

class StagedKvCoder final : public KvCoder {
 public:
  static constexpr int kLanes = 4;
  static constexpr int64_t kMaxPassBytes = int64_t{1} << 20;  // of the wire
  static constexpr int64_t kMaxPassTokens = 16384;
  // Bytes of the device's memory, and of pinned memory, that a coder takes as long as it lives.
  static constexpr int64_t kStagingBytes =
      kLanes * (kMaxPassBytes + kMaxPassTokens * int64_t{sizeof(int32_t)});

  // ResourceExhausted where the memory is not there.
  static absl::StatusOr<std::unique_ptr<StagedKvCoder>> Create(kernels::Device* device);

  absl::Status Encode(v1::KvCodec codec, const kvcache::KvPool& pool, const kvcache::KvShare& part,
                      std::span<const kvcache::SlotRun> slots, std::span<std::byte> out) override;
  absl::Status Decode(v1::KvCodec codec, std::span<const std::byte> in, kernels::DType type,
                      const kvcache::KvShare& part, std::span<const kvcache::SlotRun> slots,
                      const kvcache::KvPool& pool) override;
  absl::Status EncodeOnDevice(v1::KvCodec codec, const kvcache::KvPool& pool,
                              const kvcache::KvShare& part, std::span<const kvcache::SlotRun> slots,
                              std::span<std::byte> out) override;
  absl::Status DecodeOnDevice(v1::KvCodec codec, std::span<const std::byte> in, kernels::DType type,
                              const kvcache::KvShare& part, std::span<const kvcache::SlotRun> slots,
                              const kvcache::KvPool& pool) override;
  bool stages() const override { return true; }

 private:
  // A stream and its staging: slots of kMaxPassTokens, then kMaxPassBytes of the wire.
  struct Lane {
    std::unique_ptr<kernels::Stream> stream;
    kernels::Buffer device;
    kernels::HostBuffer host;
  };
  // What one call moves.
  struct Work {
    const kvcache::KvPool& pool;
    const kvcache::KvShare& part;
    kernels::KvWireCoding coding;
    kernels::DType wire_type;
    std::vector<int32_t> slots;  // by token
    bool encodes = false;
    // The bytes: one of the host's, or the device's.
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    std::byte* on_device = nullptr;
  };
  // Without the place of the bytes.
  static Work Encoding(v1::KvCodec codec, const kvcache::KvPool& pool, const kvcache::KvShare& part,
                       std::span<const kvcache::SlotRun> slots);
  static Work Decoding(v1::KvCodec codec, kernels::DType wire_type, const kvcache::KvShare& part,
                       std::span<const kvcache::SlotRun> slots, const kvcache::KvPool& pool);
  // A rectangle of it; planes, heads and tokens are counted from the work's first ones.
  struct Pass {
    int64_t first_plane = 0, planes = 0;
    int64_t first_head = 0, heads = 0;
    int64_t first_token = 0, tokens = 0;
  };

  explicit StagedKvCoder(kernels::Device* device) : device_(device) {}
  // Copies bytes of the host to the device, or the reverse.
  absl::Status Copy(std::byte* to, const std::byte* from, size_t bytes, bool to_device);
  absl::Status Run(const Work& work);
  // `at`: where its bytes begin in the work's.
  absl::Status RunPass(const Work& work, const Pass& pass, int64_t at, Lane& lane);
  absl::Status Move(const Work& work, const Pass& pass, int64_t at, int64_t bytes, Lane& lane);
  static int64_t BytesOf(const Work& work, const Pass& pass);
  Lane& TakeLane();
  void GiveLane(Lane& lane);

  kernels::Device* const device_;
  std::vector<Lane> lanes_;
  std::mutex mutex_;
  std::condition_variable given_;
  std::vector<Lane*> free_;
};

}  // namespace tessera::worker
