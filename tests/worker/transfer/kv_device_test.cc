// KV from GPU to GPU, without the hosts, by a fake NCCL: the bytes of the codec arrive, a pair of
// devices is kept, and whatever one end does, the other one ends in time and nothing is written
// that was not to be.
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "kernels/collectives/group_maker.h"
#include "tests/kernels/cuda/driver/fake_nccl.h"
#include "tests/logged_lines.h"
#include "tests/worker/transfer/gpu_pool.h"
#include "tests/worker/transfer/pool_mover.h"
#include "worker/transfer/device_pairs.h"
#include "worker/transfer/kv_codec.h"
#include "worker/transfer/kv_transport.h"

namespace tessera::worker {
namespace {

using Catch::Contains;

constexpr double kPatienceSeconds = 30;
const std::vector<int32_t> kFromTable = {5, 0, 7, 2}, kToTable = {1, 6, 3, 4};

// A GPU with NCCL, unless `nccl` is null.
struct Gpu {
  Gpu(const kernels::cuda::NcclTable* nccl, const std::string& uuid,
      const std::string& version = "2.28.9", const DevicePairOptions& options = {})
      : pool({nullptr, {{0, 2}, {0, 2}}, kernels::DType::kBF16, 8, 16, 16},
             {.nccl = nccl, .nccl_version = version, .uuid = uuid}),
        pairs({.maker = pool.device->group_maker(),
               .join_seconds = options.join_seconds,
               .retry_seconds = options.retry_seconds}) {}
  PoolMover::End end() {
    return {pool.pool, pool.coder.get(), pairs.maker().has_library() ? &pairs : nullptr};
  }
  bool untouched() { return pool.Read() == pool.values; }

  GpuPool pool;
  DevicePairs pairs;
};

// What `to` holds when tokens [3, 60) of `from` have come in that codec.
std::vector<std::byte> Expected(Gpu& from, Gpu& to, v1::KvCodec codec) {
  std::vector<std::byte> expected = to.pool.values;
  const kvcache::KvPool& pool = from.pool.pool;
  std::vector<std::byte> wire(
      static_cast<size_t>(KvPieceBytes(codec, pool.share, 57, pool, pool.type)));
  EncodeKv(codec, GpuPool::Over(pool, from.pool.values), pool.share,
           kvcache::SlotRuns(kFromTable, 16, 3, 60), wire.data());
  DecodeKv(codec, wire, pool.type, pool.share, kvcache::SlotRuns(kToTable, 16, 3, 60),
           GpuPool::Over(to.pool.pool, expected));
  return expected;
}

// Unlike GPUs whose workers send KV to each other.
struct Fixture {
  explicit Fixture(const DevicePairOptions& options = {})
      : from(&table, "GPU-0", "2.28.9", options), to(&table, "GPU-1", "2.28.9", options) {}
  PoolMover::Came Move(PoolMover& mover, v1::KvCodec codec = v1::KV_CODEC_RAW) {
    return mover.Move(codec, kFromTable, kToTable, 3, 60);
  }
  PoolMover::Moving Begin(PoolMover& mover) {
    return mover.Begin(v1::KV_CODEC_RAW, kFromTable, kToTable, 3, 60);
  }
  void CheckMoves(PoolMover& mover) {
    to.pool.Write(to.pool.values);
    const PoolMover::Came came = Move(mover);
    CHECK(came.sent.status.message() == "");
    CHECK(came.arrived.message() == "");
    CHECK(DescribeWay(came.sent.transport, came.sent.staged) == "nccl");
    CHECK((to.pool.Read() == Expected(from, to, v1::KV_CODEC_RAW)));
  }

  tests::FakeNccl fake;
  const kernels::cuda::NcclTable table = TableOf(&fake);
  Gpu from, to;
};

TEST_CASE_METHOD(Fixture, "KV goes from GPU to GPU in any codec, through one pair that is kept") {
  PoolMover mover(from.end(), to.end());
  for (const v1::KvCodec codec : {v1::KV_CODEC_RAW, v1::KV_CODEC_INT8, v1::KV_CODEC_INT4}) {
    CAPTURE(v1::KvCodec_Name(codec));
    to.pool.Write(to.pool.values);
    const PoolMover::Came came = Move(mover, codec);
    CHECK(came.sent.status.message() == "");
    CHECK(came.arrived.message() == "");
    CHECK(DescribeWay(came.sent.transport, came.sent.staged) == "nccl");
    CHECK((to.pool.Read() == Expected(from, to, codec)));
  }
  CHECK(fake.alive == 2);
  CHECK(fake.aborted == 0);
  const auto counters = mover.outbox().counters();
  REQUIRE(counters.size() == 1);
  CHECK(counters[0].transport() == "nccl");
  CHECK(static_cast<int64_t>(counters[0].bytes_sent()) >
        KvPieceBytes(v1::KV_CODEC_RAW, from.pool.pool.share, 57, from.pool.pool,
                     kernels::DType::kBF16));
  CHECK(counters[0].failures() == 0);
}

TEST_CASE_METHOD(Fixture, "where NCCL cannot be used KV is staged, and the log says why") {
  Gpu same(&table, "GPU-0"), other(&table, "GPU-2", "2.27.5"), without(nullptr, "");
  struct Case {
    Gpu* from;
    Gpu* to;
    std::string why;
  };
  const Case cases[] = {{&from, &same, "both ends are on one GPU, GPU-0"},
                        {&from, &other, "the sender has NCCL 2.28.9, the receiver NCCL 2.27.5"},
                        {&from, &without, "the receiver's device has no NCCL"},
                        {&without, &to, "this worker's device has no NCCL"}};
  const Case& one = cases[GENERATE(range(0, 4))];
  INFO(one.why);
  {
    const tests::LoggedLines lines("worker");
    PoolMover mover(one.from->end(), one.to->end());
    for (int i = 0; i < 2; ++i) {
      one.to->pool.Write(one.to->pool.values);
      const PoolMover::Came came = Move(mover);
      CHECK(came.sent.status.message() == "");
      CHECK(DescribeWay(came.sent.transport, came.sent.staged) == "tcp, staged");
      CHECK((one.to->pool.Read() == Expected(*one.from, *one.to, v1::KV_CODEC_RAW)));
    }
    if (one.from == &without) {
      CHECK(lines.Count("KV of worker 5 comes through the hosts: it has no NCCL") == 1);
    } else {
      CHECK(lines.Count(" goes through the hosts: " + one.why) == 1);
    }
  }
  one.to->pool.Write(one.to->pool.values);
  PoolMover insists(one.from->end(), one.to->end(), KvTransport::kNccl);
  const PoolMover::Came refused = Move(insists);
  CHECK_THAT(std::string(refused.sent.status.message()),
             Contains("KV over nccl was asked for") && Contains(one.why));
  CHECK_FALSE(refused.arrived.ok());
  CHECK(one.to->untouched());
  CHECK(fake.alive == 0);
}

TEST_CASE_METHOD(Fixture, "a transport that is asked for is used, also between GPUs") {
  PoolMover mover(from.end(), to.end(), KvTransport::kTcp);
  const PoolMover::Came came = Move(mover);
  CHECK(came.sent.status.message() == "");
  CHECK(DescribeWay(came.sent.transport, came.sent.staged) == "tcp, staged");
  PoolMover insists(from.end(), to.end(), KvTransport::kNccl);
  CheckMoves(insists);
}

TEST_CASE("devices that do not join leave KV staged, and are left alone for a while") {
  const bool absent = GENERATE(true, false);
  const bool again = GENERATE(true, false);
  CAPTURE(absent, again);
  Fixture two({.join_seconds = absent ? 0.3 : 20, .retry_seconds = again ? 0.0 : 600});
  two.fake.absent_rank = absent ? 1 : -1;
  two.fake.joins_fail = !absent;
  const tests::LoggedLines lines("worker");
  PoolMover mover(two.from.end(), two.to.end());
  const int tries = again ? 2 : 1;
  for (int i = 0; i < 2; ++i) {
    const PoolMover::Came came = two.Move(mover);
    CHECK(came.sent.status.message() == "");
    CHECK(came.arrived.message() == "");
    CHECK(DescribeWay(came.sent.transport, came.sent.staged) == "tcp, staged");
  }
  CHECK(lines.Count("could not join: ") >= 1);
  CHECK(two.fake.alive == 0);
  CHECK(two.fake.aborted == (absent ? 2 * tries : 0));
}

TEST_CASE("devices that joined at last are used") {
  Fixture two({.join_seconds = 20, .retry_seconds = 0});
  two.fake.joins_fail = true;
  const tests::LoggedLines lines("worker");
  PoolMover mover(two.from.end(), two.to.end());
  CHECK(two.Move(mover).sent.transport == KvTransport::kTcp);
  two.fake.joins_fail = false;
  two.CheckMoves(mover);
  CHECK(lines.Count("goes from device to device again") == 1);
}

TEST_CASE_METHOD(Fixture, "an end that dies midway fails the KV, and the next pair is a new one") {
  PoolMover mover(from.end(), to.end());
  CheckMoves(mover);
  to.pool.Write(to.pool.values);
  const int rank = GENERATE(0, 1);
  CAPTURE(rank);
  fake.delay_seconds = kPatienceSeconds;
  PoolMover::Moving moving = Begin(mover);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  tests::KillRank(rank);
  const PoolMover::Came came = moving.Wait();
  CHECK_FALSE(came.sent.status.ok());
  CHECK_FALSE(came.arrived.ok());
  CHECK(to.untouched());
  CHECK(mover.outbox().counters()[0].failures() == 1);
  fake.delay_seconds = 0;
  CheckMoves(mover);
  CHECK(fake.alive == 2);
  CHECK(from.pool.device->Lost().ok());
}

TEST_CASE_METHOD(Fixture, "a receiver that ends midway wakes the sender") {
  PoolMover mover(from.end(), to.end());
  CheckMoves(mover);
  to.pool.Write(to.pool.values);
  fake.delay_seconds = kPatienceSeconds;
  PoolMover::Moving moving = Begin(mover);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  mover.StartInbox();
  REQUIRE(moving.sent.wait_for(std::chrono::seconds(10)) == std::future_status::ready);
  CHECK_FALSE(moving.sent.get().status.ok());
  CHECK(to.untouched());
  fake.delay_seconds = 0;
  CheckMoves(mover);
}

TEST_CASE_METHOD(Fixture, "a slow pair is waited for, for as long as a piece may take") {
  fake.delay_seconds = 0.1;
  {
    PoolMover mover(from.end(), to.end());
    CheckMoves(mover);
  }
  to.pool.Write(to.pool.values);
  fake.delay_seconds = kPatienceSeconds;
  PoolMover hasty(from.end(), to.end(), std::nullopt, /*wait_seconds=*/1);
  const PoolMover::Came came = Move(hasty);
  CHECK_FALSE(came.sent.status.ok());
  CHECK_FALSE(came.arrived.ok());
  CHECK(to.untouched());
  CHECK(fake.alive == 0);  // both ends gave up theirs
  fake.delay_seconds = 0;
  CheckMoves(hasty);
}

TEST_CASE_METHOD(Fixture, "KV that is not wanted any more leaves its pair to others") {
  PoolMover mover(from.end(), to.end());
  CheckMoves(mover);
  to.pool.Write(to.pool.values);
  const bool sender = GENERATE(true, false);
  CAPTURE(sender);
  fake.delay_seconds = 0.3;
  {
    PoolMover::Moving moving = Begin(mover);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (sender) mover.outbox().Stop(moving.id);
    if (!sender) mover.inbox().Forget(moving.ticket);
    // It ends in its own time: whoever still waits for it is told by its link.
    if (sender) CHECK_FALSE(moving.arrived.get().ok());
    if (!sender) CHECK_FALSE(moving.sent.get().status.ok());
  }
  if (!sender) CHECK(to.untouched());
  fake.delay_seconds = 0;
  CheckMoves(mover);
  CHECK(fake.aborted == 0);
  CHECK(fake.alive == 2);
}

TEST_CASE_METHOD(Fixture,
                 "two workers that send each other many at once wait for nobody for ever") {
  PoolMover there(from.end(), to.end()), back(to.end(), from.end());
  std::vector<PoolMover::Moving> moving;
  for (int i = 0; i < 8; ++i) {
    // Of each its own block, out of one half of a pool and into the other.
    moving.push_back(there.Begin(v1::KV_CODEC_RAW, {i % 4}, {4 + i % 4}, 0, 16));
    moving.push_back(back.Begin(v1::KV_CODEC_INT8, {i % 4}, {4 + i % 4}, 0, 16));
  }
  for (PoolMover::Moving& one : moving) {
    const PoolMover::Came came = one.Wait();
    CHECK(came.sent.status.message() == "");
    CHECK(came.arrived.message() == "");
    CHECK(came.sent.transport == KvTransport::kNccl);
  }
  CHECK(fake.alive == 4);  // a pair each way
  CHECK(fake.aborted == 0);
}

}  // namespace
}  // namespace tessera::worker
