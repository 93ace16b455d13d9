// A pool that the host does not read: its KV goes through the device's kernels and staging with the
// bytes of the host's codecs, and what the device fails at is the parcel's failure.
#include "worker/transfer/staged_kv_coder.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <cstring>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/emulation/runtime.h"
#include "worker/transfer/kv_codec.h"
#include "worker/transfer/kv_inbox.h"
#include "worker/transfer/kv_outbox.h"

namespace tessera::worker {
namespace {

using kernels::cuda::emulated::CheckMemoryGuards;
using kernels::cuda::emulated::cudaErrorIllegalAddress;
using kernels::cuda::emulated::cudaErrorLaunchOutOfResources;
using kernels::cuda::emulated::Inject;
using kvcache::KvPool;
using kvcache::KvShare;
using kvcache::KvType;
using kvcache::SlotRun;

constexpr v1::KvCodec kCodecs[] = {v1::KV_CODEC_RAW, v1::KV_CODEC_INT8, v1::KV_CODEC_INT4};

// The emulated GPU, and a pool of it of which the host has a copy.
class Gpu {
 public:
  explicit Gpu(const KvPool& shape, uint32_t seed = 1) : pool(shape) {
    Inject({});
    auto created = kernels::cuda::emulated::CreateCudaDevice({.memory_bytes = int64_t{256} << 20});
    REQUIRE(created.status().message() == "");
    device = *std::move(created);
    auto made = StagedKvCoder::Create(device.get());
    REQUIRE(made.status().message() == "");
    coder = *std::move(made);
    auto allocated = device->Allocate(pool.bytes());
    REQUIRE(allocated.ok());
    memory_ = *std::move(allocated);
    pool.memory = memory_.data();
    stream_ = *device->CreateStream();
    std::mt19937 random(seed);
    values.resize(static_cast<size_t>(pool.bytes()));
    for (size_t i = 0; i + 1 < values.size(); i += 2) {  // 16-bit floats, and f32 of two of them
      const auto bits = static_cast<uint16_t>(0x3000 + random() % 0x1000);
      std::memcpy(values.data() + i, &bits, sizeof bits);
    }
    Write(values);
  }
  ~Gpu() { Inject({}); }

  void Write(const std::vector<std::byte>& bytes) {
    REQUIRE(stream_->CopyToDevice(pool.memory, bytes.data(), pool.bytes()).ok());
    REQUIRE(stream_->Synchronize().message() == "");
  }
  std::vector<std::byte> Read() {
    std::vector<std::byte> bytes(static_cast<size_t>(pool.bytes()));
    REQUIRE(stream_->CopyToHost(bytes.data(), pool.memory, pool.bytes()).ok());
    REQUIRE(stream_->Synchronize().message() == "");
    return bytes;
  }
  // The same pool in the host's memory.
  static KvPool Over(const KvPool& pool, std::vector<std::byte>& bytes) {
    KvPool host = pool;
    host.memory = bytes.data();
    return host;
  }

  std::unique_ptr<kernels::Device> device;
  std::unique_ptr<StagedKvCoder> coder;
  KvPool pool;
  std::vector<std::byte> values;  // that it began with

 private:
  kernels::Buffer memory_;
  std::unique_ptr<kernels::Stream> stream_;
};

void CheckBothWays(Gpu& gpu, const KvShare& part, const std::vector<SlotRun>& slots) {
  int64_t tokens = 0;
  for (const SlotRun& run : slots) tokens += run.tokens;
  for (const v1::KvCodec codec : kCodecs) {
    CAPTURE(v1::KvCodec_Name(codec));
    const int64_t bytes = KvPieceBytes(codec, part, tokens, gpu.pool.head_dim, gpu.pool.type);
    std::vector<std::byte> expected(static_cast<size_t>(bytes)), wire(expected.size());
    EncodeKv(codec, Gpu::Over(gpu.pool, gpu.values), part, slots, expected.data());
    REQUIRE(gpu.coder->Encode(codec, gpu.pool, part, slots, wire).message() == "");
    CHECK((wire == expected));

    std::vector<std::byte> before(gpu.values.size(), std::byte{0xee}), after = before;
    DecodeKv(codec, wire, gpu.pool.type, part, slots, Gpu::Over(gpu.pool, after));
    gpu.Write(before);
    REQUIRE(gpu.coder->Decode(codec, wire, gpu.pool.type, part, slots, gpu.pool).message() == "");
    CHECK((gpu.Read() == after));
    gpu.Write(gpu.values);
  }
  CHECK(CheckMemoryGuards().message() == "");
}

TEST_CASE("KV of a GPU's pool has the bytes of the host's codecs, both ways") {
  const KvType type = GENERATE(KvType::kFloat32, KvType::kBFloat16, KvType::kFloat16);
  Gpu gpu({nullptr, {{2, 4}, {1, 4}}, type, 10, 16, 24});
  CheckBothWays(gpu, {{2, 4}, {1, 4}}, {{35, 13}, {0, 40}, {100, 30}});
  CheckBothWays(gpu, {{3, 4}, {2, 3}}, {{7, 1}});
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
    Gpu gpu({nullptr, {{0, 2}, {0, heads}}, KvType::kFloat32, blocks, 16, head_dim});
    const int64_t tokens = int64_t{blocks} * 16 - 9;
    CheckBothWays(gpu, {{0, 2}, {0, heads}}, {{9, tokens - 70}, {2, 6}});
  }
}

TEST_CASE("several at once each get their own") {
  Gpu gpu({nullptr, {{0, 1}, {0, 2}}, KvType::kFloat32, 16, 16, 16});
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 2 * StagedKvCoder::kLanes; ++i) {
    threads.emplace_back([&, i] {
      const std::vector<SlotRun> slots = {{16 * i, 16 + i}};
      const v1::KvCodec codec = kCodecs[i % 3];
      std::vector<std::byte> expected(static_cast<size_t>(
          KvPieceBytes(codec, gpu.pool.share, 16 + i, gpu.pool.head_dim, gpu.pool.type)));
      std::vector<std::byte> wire(expected.size());
      std::vector<std::byte> values = gpu.values;
      EncodeKv(codec, Gpu::Over(gpu.pool, values), gpu.pool.share, slots, expected.data());
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
  Gpu gpu({nullptr, {{0, 1}, {0, 1}}, KvType::kFloat32, 4, 16, 8});
  const std::vector<SlotRun> slots = {{0, 32}};
  std::vector<std::byte> wire(
      static_cast<size_t>(KvPieceBytes(v1::KV_CODEC_INT8, gpu.pool.share, 32, 8, gpu.pool.type)));
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

// Two workers' pools, the one's a GPU's, and links between them.
struct Ends {
  Ends(KvCoder& from_coder, KvCoder& to_coder, const KvPool& from, const KvPool& to)
      : from(from),
        to(to),
        outbox({.cluster_token = "", .incarnation = 5, .wait_seconds = 5, .coder = &from_coder}) {
    auto started = KvInbox::Start({{"127.0.0.1:0"}, "", 77, &to_coder});
    REQUIRE(started.ok());
    inbox = *std::move(started);
  }
  struct Came {
    absl::Status sent, arrived;
  };
  Came Move(v1::KvCodec codec, const std::vector<int32_t>& from_table,
            const std::vector<int32_t>& to_table, int64_t first, int64_t end) {
    std::promise<absl::Status> sent, arrived;
    KvPartRoom room;
    room.place = {to, to.share, codec, to_table, first, end};
    room.done = [&](const absl::Status& status) { arrived.set_value(status); };
    KvParcel parcel;
    parcel.route.set_ticket(inbox->Expect(std::move(room)));
    for (const std::string& address : inbox->addresses()) parcel.route.add_addresses(address);
    parcel.route.set_incarnation(77);
    parcel.route.mutable_part()->mutable_layers()->set_end(from.share.layers.end);
    parcel.route.mutable_part()->mutable_kv_heads()->set_end(from.share.kv_heads.end);
    parcel.pool = from;
    parcel.codec = codec;
    parcel.first = first;
    parcel.end = end;
    parcel.done = [&](const KvParcelOutcome& outcome) { sent.set_value(outcome.status); };
    const KvOutbox::ParcelId id = outbox.Open(std::move(parcel));
    const auto table = std::make_shared<const std::vector<int32_t>>(from_table);
    for (int32_t layer = 0; layer < from.share.layers.end; ++layer)
      outbox.Add(id, layer, table, end);
    return {sent.get_future().get(), arrived.get_future().get()};
  }

  const KvPool from, to;
  std::unique_ptr<KvInbox> inbox;
  KvOutbox outbox;
};

TEST_CASE("KV goes from a GPU's pool to a CPU's, and back, over links") {
  const v1::KvCodec codec = GENERATE(v1::KV_CODEC_RAW, v1::KV_CODEC_INT8);
  Gpu gpu({nullptr, {{0, 2}, {0, 2}}, KvType::kBFloat16, 8, 16, 16});
  KvPool shape = gpu.pool;
  shape.block_tokens = 4;
  shape.blocks = 40;
  std::vector<std::byte> host(static_cast<size_t>(shape.bytes()), std::byte{0xee});
  const KvPool cpu = Gpu::Over(shape, host);
  const std::vector<int32_t> there = {5, 0, 7, 2, 1, 3, 6};
  std::vector<int32_t> here;
  for (int32_t i = 0; i < 28; ++i) here.push_back((i * 3 + 1) % 40);
  Ends out(*gpu.coder, HostKvCoder(), gpu.pool, cpu);
  const Ends::Came came = out.Move(codec, there, here, 3, 100);
  CHECK(came.sent.message() == "");
  CHECK(came.arrived.message() == "");

  // To other blocks of the GPU's, which then hold what two passes through the codec give.
  const std::vector<int32_t> back = {4, 3, 2, 1, 0, 7, 6};
  std::vector<std::byte> expected = gpu.values;
  const KvPool as_host = Gpu::Over(gpu.pool, expected);
  std::vector<std::byte> wire(
      static_cast<size_t>(KvPieceBytes(codec, cpu.share, 97, cpu.head_dim, cpu.type)));
  EncodeKv(codec, cpu, cpu.share, kvcache::SlotRuns(here, 4, 3, 100), wire.data());
  DecodeKv(codec, wire, cpu.type, cpu.share, kvcache::SlotRuns(back, 16, 3, 100), as_host);
  Ends in(HostKvCoder(), *gpu.coder, cpu, gpu.pool);
  const Ends::Came returned = in.Move(codec, here, back, 3, 100);
  CHECK(returned.sent.message() == "");
  CHECK(returned.arrived.message() == "");
  CHECK((gpu.Read() == expected));
}

TEST_CASE("a launch that fails fails the parcel with its reason, on either side") {
  Gpu gpu({nullptr, {{0, 2}, {0, 2}}, KvType::kBFloat16, 8, 16, 16});
  std::vector<std::byte> host(gpu.values.size(), std::byte{0x11});
  const KvPool cpu = Gpu::Over(gpu.pool, host);
  const std::vector<int32_t> table = {5, 0, 7, 2};
  {
    Ends out(*gpu.coder, HostKvCoder(), gpu.pool, cpu);
    Inject({.failing_launch = 2, .launch_error = cudaErrorLaunchOutOfResources});
    const Ends::Came came = out.Move(v1::KV_CODEC_RAW, table, table, 0, 64);
    CHECK_THAT(std::string(came.sent.message()), Catch::Contains("EncodeKv"));
    CHECK_FALSE(came.arrived.ok());
    CHECK(out.Move(v1::KV_CODEC_RAW, table, table, 0, 64).arrived.message() == "");
  }
  Ends in(HostKvCoder(), *gpu.coder, cpu, gpu.pool);
  Inject({.failing_launch = 2, .launch_error = cudaErrorLaunchOutOfResources});
  const Ends::Came came = in.Move(v1::KV_CODEC_INT8, table, table, 0, 64);
  CHECK_THAT(std::string(came.arrived.message()), Catch::Contains("DecodeKv"));
  CHECK_FALSE(came.sent.ok());
  CHECK(in.Move(v1::KV_CODEC_INT8, table, table, 0, 64).arrived.message() == "");
}

}  // namespace
}  // namespace tessera::worker
