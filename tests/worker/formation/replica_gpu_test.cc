// GPUs, which the emulator plays, share a replica with CPUs and with each other: rows and sums go
// through pinned memory, sums of GPUs alone meet there, and the tokens are one worker's.
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cuda/emulation/host_memory.h"
#include "kernels/cuda/emulation/runtime.h"
#include "proto/layers/layers.h"
#include "proto/model/model_folder.h"
#include "tests/kernels/cuda/driver/fake_nccl.h"
#include "tests/logged_lines.h"
#include "tests/worker/engine/engine_harness.h"
#include "tests/worker/formation/replica_comparison.h"
#include "tests/worker/formation/replica_harness.h"
#include "tests/worker/model/tiny_model.h"

namespace tessera::worker {
namespace {

namespace emulated = kernels::cuda::emulated;

// The emulator is slow.
constexpr int32_t kTokens = 4;

int64_t LayersOf(const std::string& model) {
  const auto shape = ReadModelFolder(GoldenFolder(model).string());
  REQUIRE(shape.ok());
  return LayerCount(*shape);
}

ReplicaOptions Layout(std::vector<StageLayout> stages, std::set<int> gpus) {
  ReplicaOptions options;
  options.stages = std::move(stages);
  options.gpus = std::move(gpus);
  options.max_batched_tokens = 32;
  return options;
}

v1::Submit Ask(uint64_t id, const GoldenRun& run, int32_t tokens = kTokens) {
  v1::Submit submit = MakeSubmit(id, run.prompt, tokens);
  submit.set_ignore_eos(true);
  return submit;
}

Answers Answer(PlannedReplica& replica, const std::string& model, int32_t top_logprobs = 0) {
  const std::vector<GoldenRun> runs = ReadGolden(model);
  for (size_t i = 0; i < 2; ++i) {
    v1::Submit submit = Ask(i, runs[i]);
    submit.set_top_logprobs(top_logprobs);
    replica.Submit(std::move(submit));
  }
  return replica.WaitAll();
}

void CheckTokens(const std::string& model, const Answers& answers) {
  const std::vector<GoldenRun> runs = ReadGolden(model);
  for (size_t i = 0; i < 2; ++i) {
    const ChoiceEvents& choice = answers.at({i, 0});
    INFO("prompt " << i << ": " << choice.error);
    CHECK(choice.tokens ==
          std::vector<int32_t>(runs[i].tokens.begin(), runs[i].tokens.begin() + kTokens));
  }
}

TEST_CASE("a GPU before, behind, beside and instead of a CPU: one worker's tokens") {
  // Layers that normalise behind a block too, and experts: what ranks send each other beside sums.
  for (const char* model : {"llama", "opt_projected_post_norm", "mixtral"}) {
    const int64_t layers = LayersOf(model);
    for (const ReplicaOptions& options :
         {Layout({{1, 1}, {layers - 1, 1}}, {0}), Layout({{1, 1}, {layers - 1, 1}}, {1}),
          Layout({{layers, 2}}, {0}), Layout({{layers, 2}}, {1}), Layout({{layers, 2}}, {0, 1}),
          Layout({{1, 2}, {layers - 1, 1}}, {1, 2})}) {
      INFO(model << ", " << options.stages.size() << " stages, the first of "
                 << options.stages[0].width << ", first GPU at member " << *options.gpus.begin());
      PlannedReplica replica(GoldenFolder(model).string(), options);
      CheckTokens(model, Answer(replica, model));
    }
  }
  CHECK(emulated::PinnedBytes() == 0);
  CHECK(emulated::RegisteredBytes() == 0);
}

TEST_CASE("ranks on GPUs of one machine sum on the devices, in even and uneven parts") {
  const std::string model = "llama";
  const int64_t layers = LayersOf(model);
  for (const StageLayout& stage : {StageLayout{layers, 2, {}}, StageLayout{layers, 2, {0.75, 0.25}},
                                   StageLayout{layers, 4, {}}}) {
    for (const bool maps_sums : {true, false}) {
      INFO(stage.width << " ranks, " << (stage.fractions.empty() ? "even" : "uneven")
                       << (maps_sums ? ", mapped" : ", through the host"));
      std::set<int> gpus;
      for (int rank = 0; rank < stage.width; ++rank) gpus.insert(rank);
      ReplicaOptions options = Layout({stage}, gpus);
      options.maps_sums = maps_sums;
      const tests::LoggedLines lines("worker");
      const int64_t before = emulated::LaunchesFrom("mapped_sum.cu");
      {
        PlannedReplica replica(GoldenFolder(model).string(), options);
        CheckTokens(model, Answer(replica, model));
        for (int rank = 0; rank < stage.width; ++rank) {
          CHECK_THAT(
              replica.ready(rank).device(),
              Catch::EndsWith(maps_sums ? "; ranks sum by the devices, in each other's memory, "
                                          "up to 256 KiB, above by their hosts (shared memory)"
                                        : "; ranks sum by their hosts (shared memory)"));
        }
      }
      CHECK((emulated::LaunchesFrom("mapped_sum.cu") > before) == maps_sums);
      CHECK(lines.Count("KiB by the devices, in each other's memory") ==
            (maps_sums ? stage.width : 0));
    }
  }
  CHECK(emulated::RegisteredBytes() == 0);
}

TEST_CASE(
    "GPUs that may not pin the memory of their sums sum through the host, and the log says why") {
  const tests::LoggedLines lines("worker");
  emulated::LimitRegistered(1 << 20);
  {
    PlannedReplica replica(GoldenFolder("llama").string(),
                           Layout({{LayersOf("llama"), 2}}, {0, 1}));
    CheckTokens("llama", Answer(replica, "llama"));
  }
  emulated::LimitRegistered(int64_t{1} << 60);
  CHECK(lines.Count("the ranks' devices map no memory for their sums: ") == 1);
  CHECK(lines.Count("group of 2 ranks: staged through ") == 2);
  CHECK(lines.Count("KiB by the devices, in ") == 0);
}

TEST_CASE("a rank that goes away while another waits for it on its GPU ends the replica") {
  PlannedReplica replica(GoldenFolder("llama").string(), Layout({{LayersOf("llama"), 2}}, {0, 1}));
  replica.Submit(Ask(0, ReadGolden("llama")[0], 60));
  while (replica.load().generation_tokens() < 1) std::this_thread::yield();
  replica.Kill(1);
  CHECK_FALSE(replica.WaitClosed().ok());
}

TEST_CASE(
    "a stage's decode steps are replayed as graphs, with sums of ranks where devices make them") {
  // Experts: ranks follow the routes of rank 0.
  for (const std::string model : {"llama", "mixtral"}) {
    for (const int ranks : {1, 2}) {
      for (const bool maps_sums : {true, false}) {
        INFO(model << ", " << ranks << " ranks" << (maps_sums ? "" : ", through the host"));
        ReplicaOptions options = ranks == 2 ? Layout({{LayersOf(model), 2}}, {0, 1})
                                            : Layout({{1, 1}, {LayersOf(model) - 1, 1}}, {0, 1});
        options.maps_sums = maps_sums;
        PlannedReplica replica(GoldenFolder(model).string(), options);
        const int64_t before = emulated::GraphsLaunched();
        const GoldenRun run = ReadGolden(model)[0];
        replica.Submit(Ask(0, run, 6));
        CHECK(replica.WaitAll().at({0, 0}).tokens ==
              std::vector<int32_t>(run.tokens.begin(), run.tokens.begin() + 6));
        CHECK((emulated::GraphsLaunched() > before) == (ranks == 1 || maps_sums));
      }
    }
  }
}

TEST_CASE("steps of a replica allocate nothing, on the GPU or of pinned memory") {
  const std::string model = "llama";
  PlannedReplica replica(GoldenFolder(model).string(),
                         Layout({{1, 2}, {LayersOf(model) - 1, 1}}, {1, 2}));
  const std::vector<GoldenRun> runs = ReadGolden(model);
  replica.Submit(Ask(0, runs[0], 2));
  replica.WaitAll();
  const int64_t allocations = emulated::AllocationsMade(), pinned = emulated::PinnedBytes();
  CHECK(pinned > 0);
  replica.Submit(Ask(1, runs[1], 3));
  CHECK(replica.WaitAll().at({1, 0}).tokens.size() == 3);
  CHECK(emulated::AllocationsMade() == allocations);
  CHECK(emulated::PinnedBytes() == pinned);
}

TEST_CASE("16-bit weights on a GPU and a CPU: one worker's logits, but for rounding") {
  constexpr int32_t kVocabulary = 96;
  const std::string model = "llama_bf16_heads_64";
  const auto answer = [&](ReplicaOptions options) {
    options.weight_dtype = v1::DATA_TYPE_BFLOAT16;
    PlannedReplica replica(GoldenFolder(model).string(), options);
    return Answer(replica, model, kVocabulary);
  };
  const Answers alone = answer(Layout({}, {}));
  for (const ReplicaOptions& options :
       {Layout({{LayersOf(model), 2}}, {1}), Layout({{1, 1}, {LayersOf(model) - 1, 1}}, {0})}) {
    INFO(options.stages.size() << " stages");
    // The CPU rounds nothing else, the GPU activations too, and positions add up.
    CHECK(CheckWithin(2 * kRoundedRowTolerance, answer(options), alone) > 0);
  }
}

TEST_CASE("a GPU that is lost ends its replica in bounded time") {
  const std::string model = "llama";
  for (const auto& stages : {std::vector<StageLayout>{{LayersOf(model), 2}},
                             std::vector<StageLayout>{{1, 1}, {LayersOf(model) - 1, 1}}}) {
    INFO(stages.size() << " stages");
    PlannedReplica replica(GoldenFolder(model).string(), Layout(stages, {1}));
    emulated::Inject({.failing_launch = 5});
    replica.Submit(Ask(0, ReadGolden(model)[0]));
    CHECK_FALSE(replica.WaitClosed().ok());
    emulated::Inject({});
  }
}

// Two ranks, of which `gpus` are GPUs, answer while `lines` listen. How the first one sums.
std::string CheckTwoRanks(const tests::FakeNccl& fake, ReplicaOptions options) {
  const std::string model = "llama";
  std::string ways;
  {
    PlannedReplica replica(GoldenFolder(model).string(), options);
    CheckTokens(model, Answer(replica, model));
    ways = replica.ready(0).device();
  }
  CHECK(fake.alive == 0);
  return ways;
}

TEST_CASE("unlike GPUs sum by NCCL, with a CPU or twice the same GPU through the host") {
  tests::FakeNccl fake;
  const kernels::cuda::NcclTable table = TableOf(&fake);
  ReplicaOptions options = Layout({{LayersOf("llama"), 2}}, {0, 1});
  options.nccl = &table;
  {
    const tests::LoggedLines lines("worker");
    CHECK_THAT(CheckTwoRanks(fake, options),
               Catch::Contains("; ranks sum by the devices, in each other's memory, up to 256 KiB, "
                               "above by NCCL 2.28.9"));
    CHECK(lines.Count("group of 2 ranks: NCCL 2.28.9") == 2);
    CHECK(fake.aborted + fake.destroyed == 2);
  }
  {
    const tests::LoggedLines lines("worker");
    options.same_gpu = true;
    CheckTwoRanks(fake, options);
    CHECK(lines.Count("through the host: ranks 0 and 1 are on one GPU, GPU-0") == 1);
    CHECK(lines.Count("group of 2 ranks: staged through ") == 2);
  }
  {
    const tests::LoggedLines lines("worker");
    options.gpus = {0};
    CheckTwoRanks(fake, options);
    CHECK(lines.Count("through the host: rank 1 has no NCCL") == 1);
    CHECK(lines.Count("group of 2 ranks: staged through ") == 1);
    CHECK(lines.Count("group of 2 ranks: shared memory") == 1);
  }
  CHECK(fake.aborted + fake.destroyed == 2);  // none was made
}

TEST_CASE("GPUs that do not join by NCCL sum through the host, and the log says why") {
  tests::FakeNccl fake;
  const kernels::cuda::NcclTable table = TableOf(&fake);
  fake.joins_fail = true;
  const tests::LoggedLines lines("worker");
  ReplicaOptions options = Layout({{LayersOf("llama"), 2}}, {0, 1});
  options.nccl = &table;
  CheckTwoRanks(fake, options);
  CHECK(lines.Count("do not join, so values go through the host: ") == 1);
  CHECK(lines.Count("group of 2 ranks: staged through ") == 2);
}

TEST_CASE("a GPU whose process dies ends a replica that sums by NCCL") {
  tests::FakeNccl fake;
  const kernels::cuda::NcclTable table = TableOf(&fake);
  ReplicaOptions options = Layout({{LayersOf("llama"), 2}}, {0, 1});
  options.nccl = &table;
  options.maps_sums = false;  // or nothing of a step would be NCCL's
  {
    PlannedReplica replica(GoldenFolder("llama").string(), options);
    tests::KillRank(1);
    fake.delay_seconds = 0.01;  // so that something is waited for
    replica.Submit(Ask(0, ReadGolden("llama")[0]));
    CHECK_FALSE(replica.WaitClosed().ok());
  }
  CHECK(fake.alive == 0);
}

}  // namespace
}  // namespace tessera::worker
