#include "worker/transfer/kv_codec_probe.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "worker/transfer/kv_codec.h"

namespace tessera::worker {
namespace {

constexpr int64_t kBlockTokens = 64, kMaxBlocks = 16, kHeadDim = 128;
constexpr kvcache::KvShare kShare = {{0, 1}, {0, 8}};

// Seconds of the best run; what fails ends the runs.
template <typename What>
absl::StatusOr<double> Seconds(int runs, const What& what) {
  double least = 0;
  for (int run = 0; run < runs; ++run) {
    const auto began = std::chrono::steady_clock::now();
    if (absl::Status status = what(); !status.ok()) return status;
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    least = run == 0 ? seconds : std::min(least, seconds);
  }
  return least;
}

}  // namespace

absl::StatusOr<double> ProbeKvCodecRate(kernels::Device& device, KvCoder& coder,
                                        const kernels::ProbeOptions& options) {
  kvcache::KvPool pool = {nullptr, kShare, kernels::DType::kBF16, 1, kBlockTokens, kHeadDim};
  pool.blocks = std::clamp<int64_t>(options.buffer_bytes / pool.bytes(), 1, kMaxBlocks);
  // Bytes that are floats of every size but no NaN: 0x3c3c is 0.0115.
  std::vector<std::byte> memory(static_cast<size_t>(pool.bytes()), std::byte{0x3c});
  for (size_t i = 0; i < memory.size(); i += 2) memory[i] = static_cast<std::byte>(i * 31);
  auto buffer = device.Allocate(pool.bytes());
  if (!buffer.ok()) return buffer.status();
  auto stream = device.CreateStream();
  if (!stream.ok()) return stream.status();
  absl::Status copied = (*stream)->CopyToDevice(buffer->data(), memory.data(), pool.bytes());
  copied.Update((*stream)->Synchronize());
  if (!copied.ok()) return copied;
  pool.memory = buffer->data();
  const int64_t tokens = pool.blocks * kBlockTokens;
  const std::vector<kvcache::SlotRun> slots = {{0, tokens}};
  std::vector<std::byte> wire(
      static_cast<size_t>(KvPieceBytes(v1::KV_CODEC_INT8, pool.share, tokens, pool, pool.type)));
  const auto write = Seconds(
      options.runs, [&] { return coder.Encode(v1::KV_CODEC_INT8, pool, pool.share, slots, wire); });
  if (!write.ok()) return write.status();
  const auto read = Seconds(options.runs, [&] {
    return coder.Decode(v1::KV_CODEC_INT8, wire, pool.type, pool.share, slots, pool);
  });
  if (!read.ok()) return read.status();
  const double slower = std::max(*write, *read);
  return slower > 0 ? static_cast<double>(pool.bytes()) / slower : 0;
}

}  // namespace tessera::worker
