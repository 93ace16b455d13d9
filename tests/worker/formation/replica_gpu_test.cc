// GPUs, which the emulator plays, share a replica with CPUs and with each other: rows and sums go
// through pinned memory, and the tokens are one worker's.
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "kernels/cuda/emulation/runtime.h"
#include "proto/model_folder.h"
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
  return shape->layers();
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
  submit.set_top_logprobs(5);
  return submit;
}

Answers Answer(PlannedReplica& replica, const std::string& model) {
  const std::vector<GoldenRun> runs = ReadGolden(model);
  for (size_t i = 0; i < 2; ++i) replica.Submit(Ask(i, runs[i]));
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
}

TEST_CASE("a stage's decode steps are replayed as graphs, those with sums of ranks never") {
  const std::string model = "llama";
  for (const bool ranks : {false, true}) {
    INFO((ranks ? "two ranks" : "two stages"));
    PlannedReplica replica(GoldenFolder(model).string(),
                           ranks ? Layout({{LayersOf(model), 2}}, {0, 1})
                                 : Layout({{1, 1}, {LayersOf(model) - 1, 1}}, {0, 1}));
    const int64_t before = emulated::GraphsLaunched();
    const GoldenRun run = ReadGolden(model)[0];
    replica.Submit(Ask(0, run, 6));
    CHECK(replica.WaitAll().at({0, 0}).tokens ==
          std::vector<int32_t>(run.tokens.begin(), run.tokens.begin() + 6));
    CHECK((emulated::GraphsLaunched() > before) == !ranks);
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

TEST_CASE("a GPU that is lost ends its replica, and says why") {
  const std::string model = "llama";
  for (const auto& stages : {std::vector<StageLayout>{{LayersOf(model), 2}},
                             std::vector<StageLayout>{{1, 1}, {LayersOf(model) - 1, 1}}}) {
    INFO(stages.size() << " stages");
    PlannedReplica replica(GoldenFolder(model).string(), Layout(stages, {1}));
    emulated::Inject({.failing_launch = 5});
    replica.Submit(Ask(0, ReadGolden(model)[0]));
    const absl::Status ended = replica.WaitClosed();
    emulated::Inject({});
    CHECK_FALSE(ended.ok());
    UNSCOPED_INFO(ended);
  }
}

}  // namespace
}  // namespace tessera::worker
