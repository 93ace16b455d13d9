// Plans for models with latent attention: every rank of a stage holds the latent, heads are shared
// out, and what a token takes is counted so.
#include <catch2/catch.hpp>
#include <string>

#include "proto/layers/kv_sizes.h"
#include "proto/layers/layers.h"
#include "scheduler/planner/planner.h"
#include "tests/scheduler/planner/one_machine.h"

namespace tessera::scheduler {
namespace {

constexpr int64_t kLatentBytes = 576 * 2;  // of a token and layer

// DeepSeek-V2-Lite: 15.7 billion parameters.
v1::Model V2Lite() {
  v1::Model model;
  model.set_name("DeepSeek-V2-Lite");
  model.set_architecture("DeepseekV2ForCausalLM");
  model.set_hidden(2048);
  model.set_vocabulary(102400);
  model.set_embedding_width(2048);
  model.set_max_positions(32768);
  model.set_dtype(v1::DATA_TYPE_BFLOAT16);
  v1::LayerKind dense;
  v1::Attention& attention = *dense.mutable_attention();
  attention.set_heads(16);
  attention.set_kv_heads(1);
  attention.set_head_dim(576);
  attention.mutable_rope()->set_rotary_dim(64);
  attention.mutable_latent()->set_rank(512);
  attention.mutable_latent()->set_plain_dim(128);
  attention.mutable_latent()->set_value_dim(128);
  dense.mutable_ffn()->set_gated(true);
  dense.mutable_ffn()->set_width(10944);
  v1::LayerKind routed = dense;
  routed.mutable_ffn()->set_width(2816);
  routed.mutable_ffn()->mutable_experts()->set_count(64);
  routed.mutable_ffn()->mutable_experts()->set_per_token(6);
  routed.mutable_ffn()->mutable_experts()->set_width(1408);
  AppendLayers(dense, 1, &model);
  AppendLayers(routed, 26, &model);
  return model;
}

void CheckStage(const v1::Stage& stage, int64_t capacity_tokens) {
  int64_t heads = 0;
  for (const v1::PlannedWorker& worker : stage.workers()) {
    const v1::WorkerShare& share = worker.share();
    INFO(worker.ShortDebugString());
    const KvBlockBytes block = BlockBytesOf(V2Lite(), share, 2, 1, /*windows_apart=*/false);
    CHECK(block.common == kLatentBytes * (share.layers().end() - share.layers().begin()));
    CHECK(worker.kv_bytes() >= capacity_tokens * block.common);
    for (const v1::LayerShare& kind : share.kinds()) {
      CHECK(kind.kv_heads().begin() == 0);
      CHECK(kind.kv_heads().end() == 1);
    }
    CHECK(share.kinds(0).query_heads().begin() == heads);
    heads = share.kinds(0).query_heads().end();
  }
  CHECK(heads == 16);
}

}  // namespace

TEST_CASE("a model that one card cannot hold runs on two, alike or not") {
  // 31.4 GB of weights.
  const std::string devices =
      GENERATE("{kind: RTX4090, count: 2}", "{kind: RTX4090, count: 1}, {kind: RTX3090, count: 1}");
  INFO(devices);
  const auto plan = MakePlan(tests::OneMachine(devices, V2Lite()), tests::Unsimulated());
  REQUIRE(plan.status().message() == "");
  REQUIRE(plan->replicas_size() == 1);
  const v1::Replica& replica = plan->replicas(0);
  const int64_t tokens = replica.prediction().kv_capacity_tokens();
  INFO("KV for " << tokens << " tokens");
  // Keys and values of 16 heads, 192 and 128 wide, would leave room for a third or less.
  CHECK(tokens > 150000);
  int64_t workers = 0;
  for (const v1::Stage& stage : replica.stages()) {
    CheckStage(stage, tokens);
    workers += stage.workers_size();
  }
  CHECK(workers == 2);
}

TEST_CASE("latents are handed over: prompts may be computed apart") {
  PlannerOptions options = tests::Unsimulated();
  options.require_split = true;
  const auto plan = MakePlan(tests::OneMachine("{kind: H100-SXM, count: 2}", V2Lite()), options);
  REQUIRE(plan.status().message() == "");
  REQUIRE(plan->replicas_size() == 2);
  for (const v1::Replica& replica : plan->replicas()) {
    CHECK(replica.role() != v1::REPLICA_ROLE_BOTH);
  }
}

}  // namespace tessera::scheduler
