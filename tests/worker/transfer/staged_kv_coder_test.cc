// A pool that the host does not read: its KV goes through the device's kernels and staging with the
// bytes of the host's codecs, and what the device fails at is the parcel's failure.
#include "worker/transfer/staged_kv_coder.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/emulation/runtime.h"
#include "tests/worker/transfer/gpu_pool.h"
#include "tests/worker/transfer/pool_mover.h"
#include "worker/transfer/kv_codec.h"

namespace tessera::worker {
namespace {

using kernels::cuda::emulated::CheckMemoryGuards;
using kernels::cuda::emulated::cudaErrorIllegalAddress;
using kernels::cuda::emulated::cudaErrorLaunchOutOfResources;
using kernels::cuda::emulated::Inject;
using kvcache::KvPool;
using kvcache::KvShare;
using kvcache::SlotRun;

constexpr v1::KvCodec kCodecs[] = {v1::KV_CODEC_RAW, v1::KV_CODEC_INT8, v1::KV_CODEC_INT4};

void CheckBothWays(GpuPool& gpu, const KvShare& part, const std::vector<SlotRun>& slots) {
  int64_t tokens = 0;
  for (const SlotRun& run : slots) tokens += run.tokens;
  for (const v1::KvCodec codec : kCodecs) {
    CAPTURE(v1::KvCodec_Name(codec));
    const int64_t bytes = KvPieceBytes(codec, part, tokens, gpu.pool, gpu.pool.type);
    std::vector<std::byte> expected(static_cast<size_t>(bytes)), wire(expected.size());
    EncodeKv(codec, GpuPool::Over(gpu.pool, gpu.values), part, slots, expected.data());
    REQUIRE(gpu.coder->Encode(codec, gpu.pool, part, slots, wire).message() == "");
    CHECK((wire == expected));

    const auto on_device = gpu.device->Allocate(bytes);
    REQUIRE(on_device.ok());
    const std::span<std::byte> there(on_device->data(), wire.size());
    REQUIRE(gpu.coder->EncodeOnDevice(codec, gpu.pool, part, slots, there).message() == "");
    CHECK((gpu.Read(there) == expected));

    std::vector<std::byte> before(gpu.values.size(), std::byte{0xee}), after = before;
    DecodeKv(codec, wire, gpu.pool.type, part, slots, GpuPool::Over(gpu.pool, after));
    gpu.Write(before);
    REQUIRE(gpu.coder->Decode(codec, wire, gpu.pool.type, part, slots, gpu.pool).message() == "");
    CHECK((gpu.Read() == after));
    gpu.Write(before);
    REQUIRE(
        gpu.coder->DecodeOnDevice(codec, there, gpu.pool.type, part, slots, gpu.pool).message() ==
        "");
    CHECK((gpu.Read() == after));
    gpu.Write(gpu.values);
  }
  CHECK(CheckMemoryGuards().message() == "");
}

TEST_CASE("KV of a GPU's pool has the bytes of the host's codecs, both ways") {
  const kernels::DType type =
      GENERATE(kernels::DType::kF32, kernels::DType::kBF16, kernels::DType::kF16,
               kernels::DType::kI8, kernels::DType::kF8);
  GpuPool gpu({nullptr, {{2, 4}, {1, 4}}, type, 10, 16, 24});
  CheckBothWays(gpu, {{2, 4}, {1, 4}}, {{35, 13}, {0, 40}, {100, 30}});
  CheckBothWays(gpu, {{3, 4}, {2, 3}}, {{7, 1}});
  GpuPool latent({nullptr, {{2, 5}, {0, 1}}, type, 10, 16, 24, /*planes=*/1});
  CheckBothWays(latent, {{2, 5}, {0, 1}}, {{35, 13}, {0, 40}, {100, 30}});
  CheckBothWays(latent, {{3, 4}, {0, 1}}, {{7, 1}});
}

TEST_CASE("KV of another type comes into a GPU's pool as the host's codec has it") {
  const auto [kept, sent] =
      GENERATE(table<kernels::DType, kernels::DType>({{kernels::DType::kI8, kernels::DType::kBF16},
                                                      {kernels::DType::kF16, kernels::DType::kI8},
                                                      {kernels::DType::kF8, kernels::DType::kI8}}));
  GpuPool gpu({nullptr, {{0, 2}, {0, 3}}, kept, 10, 16, 24});
  const KvShare part = {{0, 2}, {1, 3}};
  const std::vector<SlotRun> slots = {{35, 13}, {0, 40}};
  const int64_t bytes = KvPieceBytes(v1::KV_CODEC_RAW, part, 53, gpu.pool, sent);
  std::vector<std::byte> wire(static_cast<size_t>(bytes));
  for (size_t i = 0; i < wire.size(); ++i) wire[i] = static_cast<std::byte>(i * 37 % 64);
  std::vector<std::byte> before(gpu.values.size(), std::byte{0xee}), after = before;
  DecodeKv(v1::KV_CODEC_RAW, wire, sent, part, slots, GpuPool::Over(gpu.pool, after));
  CHECK((before != after));
  gpu.Write(before);
  REQUIRE(gpu.coder->Decode(v1::KV_CODEC_RAW, wire, sent, part, slots, gpu.pool).message() == "");
  CHECK((gpu.Read() == after));
}

TEST_CASE("what is longer than the staging goes through it part by part") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan makes the emulator's fibers too slow");
  return;
#endif
  // Planes, then heads, then tokens are cut; in the last one the tokens alone are too many.
  for (const auto& [heads, blocks, head_dim] :
       {std::tuple{3, 64, 64}, {1, 540, 64}, {1, 1040, 1}}) {
    CAPTURE(heads, blocks, head_dim);
    GpuPool gpu({nullptr, {{0, 2}, {0, heads}}, kernels::DType::kF32, blocks, 16, head_dim});
    const int64_t tokens = int64_t{blocks} * 16 - 9;
    CheckBothWays(gpu, {{0, 2}, {0, heads}}, {{9, tokens - 70}, {2, 6}});
  }
}

TEST_CASE("several at once each get their own") {
  GpuPool gpu({nullptr, {{0, 1}, {0, 2}}, kernels::DType::kF32, 16, 16, 16});
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 2 * StagedKvCoder::kLanes; ++i) {
    threads.emplace_back([&, i] {
      const std::vector<SlotRun> slots = {{16 * i, 16 + i}};
      const v1::KvCodec codec = kCodecs[i % 3];
      std::vector<std::byte> expected(static_cast<size_t>(
          KvPieceBytes(codec, gpu.pool.share, 16 + i, gpu.pool, gpu.pool.type)));
      std::vector<std::byte> wire(expected.size());
      std::vector<std::byte> values = gpu.values;
      EncodeKv(codec, GpuPool::Over(gpu.pool, values), gpu.pool.share, slots, expected.data());
      for (int round = 0; round < 3; ++round) {
        const absl::Status status = gpu.coder->Encode(codec, gpu.pool, gpu.pool.share, slots, wire);
        if (!status.ok() || wire != expected) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("a launch that fails fails its piece, and a lost device all that follow") {
  GpuPool gpu({nullptr, {{0, 1}, {0, 1}}, kernels::DType::kF32, 4, 16, 8});
  const std::vector<SlotRun> slots = {{0, 32}};
  std::vector<std::byte> wire(static_cast<size_t>(
      KvPieceBytes(v1::KV_CODEC_INT8, gpu.pool.share, 32, gpu.pool, gpu.pool.type)));
  const auto encode = [&] {
    return gpu.coder->Encode(v1::KV_CODEC_INT8, gpu.pool, gpu.pool.share, slots, wire);
  };
  Inject({.failing_launch = 1, .launch_error = cudaErrorLaunchOutOfResources});
  const absl::Status once = encode();
  CHECK(once.code() == absl::StatusCode::kInternal);
  CHECK_THAT(std::string(once.message()), Catch::Contains("EncodeKv"));
  CHECK(encode().message() == "");
  CHECK(gpu.device->Lost().ok());
  Inject({.failing_launch = 1, .launch_error = cudaErrorIllegalAddress});
  for (int i = 0; i < StagedKvCoder::kLanes + 1; ++i) {
    CHECK_THAT(std::string(encode().message()), Catch::Contains("is lost to this process"));
  }
}

TEST_CASE("KV goes from a GPU's pool to a CPU's, and back, over links") {
  const v1::KvCodec codec = GENERATE(v1::KV_CODEC_RAW, v1::KV_CODEC_INT8);
  GpuPool gpu({nullptr, {{0, 2}, {0, 2}}, kernels::DType::kBF16, 8, 16, 16});
  KvPool shape = gpu.pool;
  shape.block_tokens = 4;
  shape.blocks = 40;
  std::vector<std::byte> host(static_cast<size_t>(shape.bytes()), std::byte{0xee});
  const KvPool cpu = GpuPool::Over(shape, host);
  const std::vector<int32_t> there = {5, 0, 7, 2, 1, 3, 6};
  std::vector<int32_t> here;
  for (int32_t i = 0; i < 28; ++i) here.push_back((i * 3 + 1) % 40);
  PoolMover out({gpu.pool, gpu.coder.get()}, {cpu});
  const PoolMover::Came came = out.Move(codec, there, here, 3, 100);
  CHECK(came.sent.status.message() == "");
  CHECK(came.arrived.message() == "");

  // To other blocks of the GPU's, which then hold what two passes through the codec give.
  const std::vector<int32_t> back = {4, 3, 2, 1, 0, 7, 6};
  std::vector<std::byte> expected = gpu.values;
  const KvPool as_host = GpuPool::Over(gpu.pool, expected);
  std::vector<std::byte> wire(
      static_cast<size_t>(KvPieceBytes(codec, cpu.share, 97, cpu, cpu.type)));
  EncodeKv(codec, cpu, cpu.share, kvcache::SlotRuns(here, 4, 3, 100), wire.data());
  DecodeKv(codec, wire, cpu.type, cpu.share, kvcache::SlotRuns(back, 16, 3, 100), as_host);
  PoolMover in({cpu}, {gpu.pool, gpu.coder.get()});
  const PoolMover::Came returned = in.Move(codec, here, back, 3, 100);
  CHECK(returned.sent.status.message() == "");
  CHECK(returned.arrived.message() == "");
  CHECK((gpu.Read() == expected));
}

TEST_CASE("a launch that fails fails the parcel with its reason, on either side") {
  GpuPool gpu({nullptr, {{0, 2}, {0, 2}}, kernels::DType::kBF16, 8, 16, 16});
  std::vector<std::byte> host(gpu.values.size(), std::byte{0x11});
  const KvPool cpu = GpuPool::Over(gpu.pool, host);
  const std::vector<int32_t> table = {5, 0, 7, 2};
  {
    PoolMover out({gpu.pool, gpu.coder.get()}, {cpu});
    Inject({.failing_launch = 2, .launch_error = cudaErrorLaunchOutOfResources});
    const PoolMover::Came came = out.Move(v1::KV_CODEC_RAW, table, table, 0, 64);
    CHECK_THAT(std::string(came.sent.status.message()), Catch::Contains("EncodeKv"));
    CHECK_FALSE(came.arrived.ok());
    CHECK(out.Move(v1::KV_CODEC_RAW, table, table, 0, 64).arrived.message() == "");
  }
  PoolMover in({cpu}, {gpu.pool, gpu.coder.get()});
  Inject({.failing_launch = 2, .launch_error = cudaErrorLaunchOutOfResources});
  const PoolMover::Came came = in.Move(v1::KV_CODEC_INT8, table, table, 0, 64);
  CHECK_THAT(std::string(came.arrived.message()), Catch::Contains("DecodeKv"));
  CHECK_FALSE(came.sent.status.ok());
  CHECK(in.Move(v1::KV_CODEC_INT8, table, table, 0, 64).arrived.message() == "");
}

}  // namespace
}  // namespace tessera::worker
