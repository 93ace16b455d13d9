#include "worker/transfer/kv_codec_probe.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "worker/transfer/kv_codec.h"

namespace tessera::worker {
namespace {

constexpr int64_t kBlockTokens = 64, kBlocks = 16, kHeadDim = 128;
constexpr int kRuns = 3;

template <typename What>
double Seconds(const What& what) {
  double least = 0;
  for (int run = 0; run < kRuns; ++run) {
    const auto began = std::chrono::steady_clock::now();
    what();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    least = run == 0 ? seconds : std::min(least, seconds);
  }
  return least;
}

}  // namespace

double ProbeKvCodecRate() {
  kvcache::KvPool pool = {nullptr, {{0, 1}, {0, 8}}, kvcache::KvType::kBFloat16,
                          kBlocks, kBlockTokens,     kHeadDim};
  // Bytes that are floats of every size but no NaN: 0x3c3c is 0.0115.
  std::vector<std::byte> memory(static_cast<size_t>(pool.bytes()), std::byte{0x3c});
  for (size_t i = 0; i < memory.size(); i += 2) memory[i] = static_cast<std::byte>(i * 31);
  pool.memory = memory.data();
  std::vector<int32_t> table;
  for (int32_t block = 0; block < kBlocks; ++block) table.push_back(block);
  const int64_t tokens = kBlocks * kBlockTokens;
  const auto slots = kvcache::SlotRuns(table, kBlockTokens, 0, tokens);
  std::vector<std::byte> wire(static_cast<size_t>(
      KvPieceBytes(v1::KV_CODEC_INT8, pool.share, tokens, kHeadDim, pool.type)));
  const double write =
      Seconds([&] { EncodeKv(v1::KV_CODEC_INT8, pool, pool.share, slots, wire.data()); });
  const double read =
      Seconds([&] { DecodeKv(v1::KV_CODEC_INT8, wire, pool.type, pool.share, slots, pool); });
  const double slower = std::max(write, read);
  return slower > 0 ? static_cast<double>(pool.bytes()) / slower : 0;
}

}  // namespace tessera::worker
