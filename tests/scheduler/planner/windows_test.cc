// Plans for models some of whose layers see the last tokens alone: what such layers keep is
// windows, in the planner's bytes, in plan_check's, and in how a worker cuts them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <string>

#include "proto/document.h"
#include "proto/kv_blocks.h"
#include "proto/layers/kv_sizes.h"
#include "proto/layers/layers.h"
#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/written_layout.h"
#include "tests/scheduler/planner/one_machine.h"

namespace tessera::scheduler {
namespace {

using Catch::Contains;

constexpr int64_t kWindow = 1024;
constexpr int64_t kContext = 131072;
constexpr int64_t kLayerBytes = int64_t{2} * 16 * 128 * 2;  // of a token

// Gemma 3 27B: 62 layers, every sixth of which sees everything, the others 1024 tokens.
v1::Model Gemma27B() {
  v1::Model model;
  model.set_name("gemma-3-27b-it");
  model.set_architecture("Gemma3ForCausalLM");
  model.set_hidden(5376);
  model.set_vocabulary(262208);
  model.set_max_positions(kContext);
  model.set_tied_embeddings(true);
  model.set_dtype(v1::DATA_TYPE_BFLOAT16);
  v1::LayerKind kind;
  kind.mutable_ffn()->set_width(21504);
  kind.mutable_ffn()->set_gated(true);
  kind.mutable_attention()->set_heads(32);
  kind.mutable_attention()->set_kv_heads(16);
  kind.mutable_attention()->set_head_dim(128);
  for (int64_t layer = 0; layer < 62; ++layer) {
    kind.mutable_attention()->set_window(layer % 6 == 5 ? 0 : kWindow);
    AppendLayers(kind, 1, &model);
  }
  return model;
}

PlannerOptions Options() {
  PlannerOptions options = tests::Unsimulated();
  options.allow_split = false;
  return options;
}

KvLimits LimitsOf(const v1::Model& model, const v1::Replica& replica) {
  return {kDefaultBlockTokens, kWindow, model.max_positions(), replica.max_sequences(),
          replica.max_batched_tokens()};
}

// What the workers of a replica agree on, each with the bytes that the plan gives it.
KvBlocks AgreedBlocks(const v1::Model& model, const v1::Replica& replica) {
  const KvLimits limits = LimitsOf(model, replica);
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  KvBlocks agreed(kAny, kAny);
  for (const v1::Stage& stage : replica.stages()) {
    for (const v1::PlannedWorker& worker : stage.workers()) {
      const KvBlockBytes block =
          BlockBytesOf(model, worker.share(), 2, limits.block_tokens, /*windows_apart=*/true);
      const KvBlocks cut = CutKv(worker.kv_bytes(), block, limits);
      agreed.common = std::min(agreed.common, cut.common);
      if (block.window > 0) agreed.window = std::min(agreed.window, cut.window);
    }
  }
  return agreed;
}

}  // namespace

TEST_CASE("workers cut what a plan gives them into the KV that it promises, and windows beside") {
  const std::string devices =
      GENERATE("{kind: H100-SXM, count: 1}", "{kind: L40S, count: 2}", "{kind: RTX4090, count: 4}",
               "{kind: L40S, count: 1}, {kind: RTX4090, count: 2}");
  INFO(devices);
  const PlannerInput input = tests::OneMachine(devices, Gemma27B());
  const auto plan = MakePlan(input, Options());
  REQUIRE(plan.status().message() == "");
  REQUIRE(plan->replicas_size() > 0);
  for (const v1::Replica& replica : plan->replicas()) {
    const int64_t tokens = replica.prediction().kv_capacity_tokens();
    const KvBlocks agreed = AgreedBlocks(input.model, replica);
    INFO(replica.stages_size() << " stages, KV for " << tokens << " tokens; " << agreed.common
                               << " blocks and " << agreed.window);
    CHECK(tokens > 0);
    CHECK(agreed.common * kDefaultBlockTokens >= tokens);
    CHECK(agreed.window >= WindowBlocksFor(1, LimitsOf(input.model, replica)));
  }
}

TEST_CASE("Gemma 3 27B serves 131k tokens on cards that hold the KV of its 10 global layers") {
  // 54 GB of weights; all layers together would keep 66 GB of one sequence, the 10 keep 11 GB.
  const std::string devices =
      GENERATE("{kind: H100-SXM, count: 1}", "{kind: L40S, count: 2}", "{kind: RTX4090, count: 4}");
  INFO(devices);
  const PlannerInput input = tests::OneMachine(devices, Gemma27B());
  PlannerOptions options = Options();
  options.context_tokens = kContext;
  const auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  bool holds_longest = false;
  for (const v1::Replica& replica : plan->replicas()) {
    holds_longest |= replica.prediction().kv_capacity_tokens() >= kContext;
    CHECK(AgreedBlocks(input.model, replica).common * kDefaultBlockTokens >=
          replica.prediction().kv_capacity_tokens());
  }
  CHECK(holds_longest);
}

TEST_CASE("over two unequal stages each needs the KV of its own global layers, and windows") {
  const PlannerInput input =
      tests::OneMachine("{kind: L40S, count: 1}, {kind: A100-40, count: 1}", Gemma27B());
  PlannerOptions options = Options();
  options.context_tokens = kContext;
  v1::WrittenLayout written;
  REQUIRE(ReadDocument("replicas: [{stages: [{devices: [a/0], layers: 37}, {devices: [a/1], "
                       "layers: 25}]}]",
                       "l.yaml", &written)
              .message() == "");
  options.given_search = GivenLayout(written, "l.yaml");
  auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  v1::Replica& replica = *plan->mutable_replicas(0);
  REQUIRE(replica.stages_size() == 2);
  const KvLimits limits = LimitsOf(input.model, replica);
  replica.mutable_prediction()->set_kv_capacity_tokens(kContext);
  int64_t needed = 0;
  for (v1::Stage& stage : *replica.mutable_stages()) {
    v1::PlannedWorker& worker = *stage.mutable_workers(0);
    const v1::Range& layers = worker.share().layers();
    const int64_t global = layers.end() / 6 - layers.begin() / 6;
    const int64_t windowed = layers.end() - layers.begin() - global;
    INFO(layers.begin() << " to " << layers.end() << ": " << global << " global layers");
    // What plan_check demands.
    const int64_t least = (global * kContext + windowed * kWindow) * kLayerBytes;
    needed += least;
    REQUIRE(worker.kv_bytes() >= least);
    worker.set_kv_bytes(least - 4096);
    CHECK_THAT(std::string(CheckPlan(*plan).message()), Contains("and a window"));
    worker.set_kv_bytes(least);
    CHECK(CheckPlan(*plan).message() == "");
    // What the worker cuts: the rows of a step, and the blocks at a window's ends, come on top.
    const KvBlockBytes block =
        BlockBytesOf(input.model, worker.share(), 2, limits.block_tokens, /*windows_apart=*/true);
    const int64_t whole = SequenceKvBytes(kContext, block, limits);
    CHECK(whole >= least);
    CHECK(whole <= least + windowed * kLayerBytes * 2 * limits.block_tokens);
    const int64_t bytes =
        kContext / limits.block_tokens * block.common + WindowBlocksFor(1, limits) * block.window;
    CHECK(CutKv(bytes, block, limits).common * limits.block_tokens >= kContext);
    CHECK(CutKv(bytes - block.common, block, limits).common * limits.block_tokens < kContext);
  }
  CHECK(needed == (10 * kContext + 52 * kWindow) * kLayerBytes);
}

TEST_CASE("plan_check wants the bytes of a window beside those of the layers that keep all") {
  const PlannerInput input = tests::OneMachine("{kind: H100-SXM, count: 1}", Gemma27B());
  auto plan = MakePlan(input, Options());
  REQUIRE(plan.status().message() == "");
  REQUIRE(CheckPlan(*plan).ok());
  v1::Replica& replica = *plan->mutable_replicas(0);
  v1::PlannedWorker& worker = *replica.mutable_stages(0)->mutable_workers(0);
  const int64_t least =
      (replica.prediction().kv_capacity_tokens() * 10 + kWindow * 52) * kLayerBytes;
  REQUIRE(worker.kv_bytes() >= least);
  worker.set_kv_bytes(least);
  CHECK(CheckPlan(*plan).ok());
  worker.set_kv_bytes(least - 4096);
  const absl::Status refused = CheckPlan(*plan);
  CHECK_THAT(std::string(refused.message()), Contains("and a window"));
}

}  // namespace tessera::scheduler
