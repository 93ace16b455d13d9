// Prompts computed by one replica and continued by another, both of any layout: one worker's
// tokens. Every pair of plans has a seed of its own; TESSERA_RANDOM_PLANS says how many there are.
#include <catch2/catch.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cuda/emulation/runtime.h"
#include "tests/temporary_folder.h"
#include "tests/worker/engine/engine_harness.h"
#include "tests/worker/formation/hand_over.h"
#include "tests/worker/formation/made_checkpoint.h"
#include "tests/worker/formation/random_plans.h"
#include "tests/worker/formation/replica_comparison.h"
#include "tests/worker/formation/replica_harness.h"

namespace tessera::worker {
namespace {

TEST_CASE("a prompt of one replica goes on at another, whatever their layouts") {
  std::map<MadeModel, std::unique_ptr<tests::TemporaryFolder>> folders;
  for (const MadeModel model : MadeModels()) {
    folders[model] = std::make_unique<tests::TemporaryFolder>();
    WriteMadeCheckpoint(folders[model]->path(), model);
  }
  int64_t asked = 0, compared = 0;
  for (int seed = 0; seed < RandomPlanCount(); ++seed) {
    Numbers numbers(static_cast<uint64_t>(seed) * 104729 + 5);
    const MadeModel model = MadeModels()[static_cast<size_t>(seed) % MadeModels().size()];
    const bool exact = seed % 5 == 3;
    ReplicaOptions from, to, one_worker;
    one_worker.isas = {numbers.OneIsa()};
    for (ReplicaOptions* options : {&from, &to}) {
      options->stages = RandomStages(exact ? 1 : 4, &numbers);
      options->isas = exact ? one_worker.isas : RandomIsas(*options, &numbers);
      options->max_batched_tokens = numbers.From(8, 64);
      options->moves_kv = true;
    }
    INFO("seed " << seed << ", " << Name(model) << ": " << Describe(from) << " to "
                 << Describe(to));
    std::vector<v1::Submit> requests = RandomRequests(&numbers);
    for (v1::Submit& request : requests) request.set_max_tokens(request.max_tokens() + 1);
    const std::string folder = folders[model]->path().string();
    const Answers alone = Run(folder, one_worker, requests);
    Split split{{folder, from}, {folder, to}};
    const Answers got = split.Run(requests);
    for (const v1::Submit& request : requests) asked += request.max_tokens();
    compared += CheckWithin(kTolerance, got, alone);
    if (exact) CheckSameBits(got, alone);
    CHECK(split.decode.load().prompt_tokens() == 0);
    CHECK(HoldsNothing(split.prefill));
    CHECK(HoldsNothing(split.decode));
  }
  CHECK(compared > asked * 9 / 10);
}

// One side on the emulated GPU, whose pool the host leaves to its kernels. Of int8 the CPUs' own
// hand-over is the measure: a value at the edge of two codes may take either.
TEST_CASE("a GPU's prompts go on at CPUs, and CPUs' at a GPU") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan makes the emulator's fibers too slow");
  return;
#endif
  const v1::KvCodec codec = GENERATE(v1::KV_CODEC_RAW, v1::KV_CODEC_INT8);
  const bool gpu_prefills = GENERATE(true, false);
  CAPTURE(v1::KvCodec_Name(codec), gpu_prefills);
  const tests::TemporaryFolder made;
  WriteMadeCheckpoint(made.path(), MadeModel::kDense);
  const std::string folder = made.path().string();
  ReplicaOptions gpu, cpus, one_cpu;
  gpu.gpus = {0};
  cpus.stages = {{2, 2}, {3, 1}};
  for (ReplicaOptions* options : {&gpu, &cpus, &one_cpu}) {
    options->moves_kv = true;
    options->kv_codec = codec;
    options->max_batched_tokens = 24;
  }
  Numbers numbers(3);
  std::vector<v1::Submit> requests = RandomRequests(&numbers);
  for (v1::Submit& request : requests) request.set_max_tokens(request.max_tokens() % 10 + 2);
  const auto run = [&](const ReplicaOptions& from, const ReplicaOptions& to) {
    Split split{{folder, from}, {folder, to}, &from == &to ? "tcp" : "tcp, staged"};
    Answers answers = split.Run(requests);
    CHECK(split.decode.load().prompt_tokens() == 0);
    CHECK(HoldsNothing(split.prefill));
    CHECK(HoldsNothing(split.decode));
    return answers;
  };
  const Answers got = gpu_prefills ? run(gpu, cpus) : run(cpus, gpu);
  int64_t asked = 0;
  for (const v1::Submit& request : requests) asked += request.max_tokens();
  const bool raw = codec == v1::KV_CODEC_RAW;
  const int64_t compared = raw ? CheckWithin(kTolerance, got, Run(folder, {}, requests))
                               : CheckWithin(kCodecTolerance, got, run(one_cpu, one_cpu));
  CHECK(compared > asked / 2);
}

// Each launch of a prompt in turn fails on the side that is a GPU: a step's, or a codec's.
TEST_CASE("a launch that fails ends its prompt with the reason, and holds no block") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan makes the emulator's fibers too slow");
  return;
#endif
  const bool gpu_prefills = GENERATE(true, false);
  CAPTURE(gpu_prefills);
  const tests::TemporaryFolder made;
  WriteMadeCheckpoint(made.path(), MadeModel::kDense);
  const std::string folder = made.path().string();
  ReplicaOptions gpu, cpu;
  gpu.gpus = {0};
  gpu.moves_kv = cpu.moves_kv = true;
  Split split{
      {folder, gpu_prefills ? gpu : cpu}, {folder, gpu_prefills ? cpu : gpu}, "tcp, staged"};
  int codec_failures = 0;
  // A prompt has less than 40 launches. Which of them are a codec's depends on what the link does
  // meanwhile, so they are gone through again until enough were.
  for (int attempt = 0; attempt < 400 && codec_failures < 3; ++attempt) {
    const int launch = attempt % 40 + 1;
    CAPTURE(launch);
    v1::Submit request = MakeSubmit(100 + attempt, Prompt(20, launch, 40), 2);
    const v1::Reserved reserved = split.decode.Reserve(request, split.prefill.ready(0));
    REQUIRE(reserved.has_target());
    *request.mutable_kv_target() = reserved.target();
    kernels::cuda::emulated::Inject(
        {.failing_launch = launch,
         .launch_error = kernels::cuda::emulated::cudaErrorLaunchOutOfResources});
    split.prefill.Submit(request);
    const ChoiceEvents ended = split.prefill.WaitAll().at({request.submission_id(), 0});
    kernels::cuda::emulated::Inject({});
    split.decode.Cancel(request.submission_id());
    CHECK(HoldsNothing(split.prefill));
    CHECK(HoldsNothing(split.decode));
    if (ended.finish == v1::FINISH_REASON_HANDED_OVER) continue;
    REQUIRE(ended.finish == v1::FINISH_REASON_ERROR);
    // A sender hears of its peer's failure that the link is closed; the receiver's log says why.
    if (gpu_prefills) CHECK_THAT(ended.error, Catch::Contains("too many resources"));
    codec_failures += ended.error.find("could not be handed over") != std::string::npos;
  }
  CHECK(codec_failures == 3);
  Numbers numbers(3);
  std::vector<v1::Submit> requests = RandomRequests(&numbers);
  for (v1::Submit& request : requests) request.set_max_tokens(request.max_tokens() % 5 + 2);
  const Answers got = split.Run(requests);
  CheckWithin(kTolerance, got, Run(folder, {}, requests));
}

// Prompts that end at any moment of their way give back their blocks on both sides, and what stands
// in these afterwards is what the next prompts put there.
TEST_CASE("cancels at any moment of a hand-over leave nothing behind") {
  const tests::TemporaryFolder folder;
  WriteMadeCheckpoint(folder.path(), MadeModel::kDense);
  ReplicaOptions from, to;
  from.stages = {{2, 2}, {3, 1}};
  to.stages = {{1, 1}, {4, 3}};
  for (ReplicaOptions* options : {&from, &to}) {
    options->moves_kv = true;
    options->max_batched_tokens = 9;  // several steps a prompt
  }
  Numbers numbers(11);
  std::vector<v1::Submit> last = RandomRequests(&numbers);
  for (v1::Submit& request : last) request.set_max_tokens(request.max_tokens() + 1);
  const Answers alone = Run(folder.path().string(), {}, last);
  Split split{{folder.path().string(), from}, {folder.path().string(), to}};
  uint64_t id = 100;
  for (int round = 0; round < 30; ++round) {
    std::vector<uint64_t> ids;
    for (v1::Submit request : RandomRequests(&numbers)) {
      request.set_submission_id(++id);
      const v1::Reserved reserved = split.decode.Reserve(request, split.prefill.ready(0));
      REQUIRE(reserved.has_target());
      *request.mutable_kv_target() = reserved.target();
      request.set_max_tokens(20);
      ids.push_back(id);
      split.prefill.Submit(std::move(request));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(numbers.From(0, 8000)));
    const bool prefill_first = numbers.From(0, 1) == 0;
    for (const uint64_t one : ids) {
      if (prefill_first) split.prefill.Cancel(one);
      split.decode.Cancel(one);
      if (!prefill_first) split.prefill.Cancel(one);
    }
  }
  split.prefill.WaitAll();
  CHECK(HoldsNothing(split.prefill));
  CHECK(HoldsNothing(split.decode));
  const Answers got = split.Run(last);
  CheckWithin(kTolerance, got, alone);
}

}  // namespace
}  // namespace tessera::worker
