// Prompts of GPUs that go on at other GPUs by NCCL, a fake one: one worker's tokens, and a pair of
// GPUs that fails costs its prompts the hand-over, and neither side a block.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/kernels/cuda/driver/fake_nccl.h"
#include "tests/temporary_folder.h"
#include "tests/worker/engine/engine_harness.h"
#include "tests/worker/formation/hand_over.h"
#include "tests/worker/formation/made_checkpoint.h"
#include "tests/worker/formation/random_plans.h"
#include "tests/worker/formation/replica_comparison.h"
#include "tests/worker/formation/replica_harness.h"

namespace tessera::worker {
namespace {

bool TooSlow() {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan makes the emulator's fibers too slow");
  return true;
#else
  return false;
#endif
}

struct Fixture {
  Fixture() { WriteMadeCheckpoint(made.path(), MadeModel::kDense); }
  // On the GPUs from that one on; the emulator is slow.
  ReplicaOptions Gpus(int first_gpu, std::vector<StageLayout> stages = {},
                      v1::KvCodec codec = v1::KV_CODEC_RAW) const {
    ReplicaOptions options;
    for (size_t i = 0; i < std::max<size_t>(stages.size(), 1); ++i) {
      options.gpus.insert(static_cast<int>(i));
    }
    options.stages = std::move(stages);
    options.nccl = &table;
    options.first_gpu = first_gpu;
    options.moves_kv = true;
    options.kv_codec = codec;
    options.max_batched_tokens = 24;
    return options;
  }
  static std::vector<v1::Submit> Requests(uint64_t first_id) {
    Numbers numbers(first_id + 3);
    std::vector<v1::Submit> requests = RandomRequests(&numbers);
    for (v1::Submit& request : requests) {
      request.set_submission_id(request.submission_id() + first_id);
      request.set_max_tokens(request.max_tokens() % 6 + 2);
    }
    return requests;
  }

  const tests::TemporaryFolder made;
  const std::string folder = made.path().string();
  tests::FakeNccl fake;
  const kernels::cuda::NcclTable table = TableOf(&fake);
};

TEST_CASE_METHOD(Fixture, "GPUs' prompts go on at other GPUs by NCCL with one worker's tokens") {
  if (TooSlow()) return;
  const v1::KvCodec codec = GENERATE(v1::KV_CODEC_RAW, v1::KV_CODEC_INT8);
  CAPTURE(v1::KvCodec_Name(codec));
  const std::vector<v1::Submit> requests = Requests(0);
  Answers got;
  {
    Split split{{folder, Gpus(0, {}, codec)}, {folder, Gpus(1, {{2, 1}, {3, 1}}, codec)}, "nccl"};
    got = split.Run(requests);
    CHECK(split.decode.load().prompt_tokens() == 0);
    CHECK(HoldsNothing(split.prefill));
    CHECK(HoldsNothing(split.decode));
    CHECK(fake.alive == 4);  // one GPU sends to two
    CHECK(fake.aborted == 0);
  }
  CHECK(fake.alive == 0);
  int64_t asked = 0, compared = 0;
  for (const v1::Submit& request : requests) asked += request.max_tokens();
  if (codec == v1::KV_CODEC_RAW) {
    compared = CheckWithin(kTolerance, got, Run(folder, {}, requests));
  } else {
    ReplicaOptions cpu;
    cpu.moves_kv = true;
    cpu.kv_codec = codec;
    Split on_cpus{{folder, cpu}, {folder, cpu}};
    compared = CheckWithin(kCodecTolerance, got, on_cpus.Run(requests));
  }
  CHECK(compared > asked / 2);
}

TEST_CASE_METHOD(Fixture, "two replicas on GPUs hand over to each other at the same time") {
  if (TooSlow()) return;
  PlannedReplica one(folder, Gpus(0)), other(folder, Gpus(1));
  const std::vector<v1::Submit> there = Requests(0), back = Requests(50);
  PlayedHandOver to_other(one, other, "nccl"), to_one(other, one, "nccl");
  to_other.Begin(there);
  to_one.Begin(back);
  const Answers by_one = one.WaitAll(), by_other = other.WaitAll();
  to_other.GoOn(by_one);
  to_one.GoOn(by_other);
  const Answers of_one = one.WaitAll(), of_other = other.WaitAll();
  CheckWithin(kTolerance, to_other.Join(by_one, of_other), Run(folder, {}, there));
  CheckWithin(kTolerance, to_one.Join(by_other, of_one), Run(folder, {}, back));
  CHECK(HoldsNothing(one));
  CHECK(HoldsNothing(other));
  CHECK(fake.aborted == 0);
}

TEST_CASE_METHOD(Fixture,
                 "a pair of GPUs that fails costs the hand-over, no block, and not the next") {
  if (TooSlow()) return;
  ReplicaOptions from = Gpus(0);
  from.kv_wait_seconds = 2;
  Split split{{folder, from}, {folder, Gpus(1)}, "nccl"};
  uint64_t id = 100;
  // A new pair, or one that was kept; one end dies, or its GPU is too slow.
  for (const bool kept : {false, true}) {
    for (const int dies : {0, 1, -1}) {
      CAPTURE(kept, dies);
      if (kept) split.Run(Requests(++id * 100));
      fake.delay_seconds = 30;
      ++id;
      v1::Submit request = MakeSubmit(id, Prompt(20, static_cast<int>(id), 40), 2);
      const v1::Reserved reserved = split.decode.Reserve(request, split.prefill.ready(0));
      REQUIRE(reserved.has_target());
      *request.mutable_kv_target() = reserved.target();
      split.prefill.Submit(request);
      if (dies >= 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        tests::KillRank(dies);
      }
      const ChoiceEvents ended = split.prefill.WaitAll().at({request.submission_id(), 0});
      CHECK(ended.finish == v1::FINISH_REASON_ERROR);
      CHECK_THAT(ended.error, Catch::Contains("could not be handed over"));
      split.decode.Cancel(request.submission_id());
      CHECK(HoldsNothing(split.prefill));
      CHECK(HoldsNothing(split.decode));
      fake.delay_seconds = 0;
    }
  }
  const std::vector<v1::Submit> requests = Requests(0);
  CheckWithin(kTolerance, split.Run(requests), Run(folder, {}, requests));
  CHECK(HoldsNothing(split.prefill));
  CHECK(HoldsNothing(split.decode));
  CHECK(fake.alive == 2);
}

}  // namespace
}  // namespace tessera::worker
