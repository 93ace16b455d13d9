// Plans for models whose layers keep a state of each sequence: states are counted, as many
// sequences run as have room for theirs, and they travel with the keys and values of prompts.
#include <catch2/catch.hpp>
#include <string>

#include "proto/layers/kv_sizes.h"
#include "proto/layers/layers.h"
#include "proto/layers/state_room.h"
#include "scheduler/cost/hand_over_bytes.h"
#include "scheduler/cost/model_shape.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/report/plan_table.h"
#include "tests/scheduler/planner/one_machine.h"

namespace tessera::scheduler {
namespace {

using Catch::Contains;

// Qwen3.6-27B: three gated delta nets, then a layer that attends, and so on.
v1::Model Qwen27B() {
  v1::Model model;
  model.set_name("Qwen3.6-27B");
  model.set_architecture("Qwen3_5ForCausalLM");
  model.set_hidden(5120);
  model.set_vocabulary(248320);
  model.set_max_positions(262144);
  model.set_dtype(v1::DATA_TYPE_BFLOAT16);
  v1::LayerKind attends, delta;
  attends.mutable_ffn()->set_width(17408);
  attends.mutable_ffn()->set_gated(true);
  delta = attends;
  attends.mutable_attention()->set_heads(24);
  attends.mutable_attention()->set_kv_heads(4);
  attends.mutable_attention()->set_head_dim(256);
  attends.mutable_attention()->set_output_gate(true);
  delta.mutable_delta()->set_key_heads(16);
  delta.mutable_delta()->set_value_heads(48);
  delta.mutable_delta()->set_key_dim(128);
  delta.mutable_delta()->set_value_dim(128);
  delta.mutable_delta()->set_conv_taps(4);
  for (int64_t layer = 0; layer < 64; layer += 4) {
    AppendLayers(delta, 3, &model);
    AppendLayers(attends, 1, &model);
  }
  return model;
}

// What a worker with this share and these bytes has seats for.
KvBlocks CutOf(const v1::Model& model, const v1::PlannedWorker& worker, int64_t sequences) {
  const KvBlockBytes block = BlockBytesOf(model, worker.share(), 2, 64, /*windows_apart=*/false);
  return CutKv(worker.kv_bytes(), block, {64, 0, model.max_positions(), sequences, 2048});
}

// Workers cut as many seats from what the plan gives them as the replica is to run sequences.
void CheckSeats(const v1::Model& model, const v1::Replica& replica) {
  const int64_t tokens = replica.prediction().kv_capacity_tokens();
  INFO(replica.max_sequences() << " sequences, KV for " << tokens << " tokens");
  CHECK(replica.max_sequences() >= 1);
  CHECK(tokens >= replica.max_sequences() * kTypicalTokens);
  for (const v1::Stage& stage : replica.stages()) {
    for (const v1::PlannedWorker& worker : stage.workers()) {
      INFO(worker.ShortDebugString());
      const KvBlocks cut = CutOf(model, worker, replica.max_sequences());
      CHECK(cut.seats == replica.max_sequences());
      CHECK(cut.common * 64 >= tokens - 64);
    }
  }
}

}  // namespace

TEST_CASE("a replica runs as many sequences as its workers cut seats for") {
  const std::string devices =
      GENERATE("{kind: H100-SXM, count: 1}", "{kind: L40S, count: 2}", "{kind: RTX4090, count: 4}");
  INFO(devices);
  const PlannerInput input = tests::OneMachine(devices, Qwen27B());
  const auto plan = MakePlan(input, tests::Unsimulated());
  REQUIRE(plan.status().message() == "");
  REQUIRE(plan->replicas_size() > 0);
  for (const v1::Replica& replica : plan->replicas()) {
    CHECK(replica.role() == v1::REPLICA_ROLE_BOTH);
    CheckSeats(input.model, replica);
  }
}

TEST_CASE("a plan's text says how many of the longest sequences fit, and what limits them") {
  PlannerInput input = tests::OneMachine("{kind: H100-SXM, count: 1}", Qwen27B());
  input.model.set_max_positions(131072);
  auto plan = MakePlan(input, tests::Unsimulated());
  REQUIRE(plan.status().message() == "");
  v1::Replica& replica = *plan->mutable_replicas(0);
  const int64_t fit = replica.prediction().kv_capacity_tokens() / 131072;
  REQUIRE(fit < replica.max_sequences());
  const std::string by_kv = std::to_string(fit) + " sequences of 131072 tokens fit at once: ";
  CHECK_THAT(PlanTable(*plan), Contains(by_kv + "room for KV limits them"));
  replica.set_max_sequences(2);
  replica.mutable_prediction()->set_kv_capacity_tokens(2 * 131072);
  CHECK_THAT(PlanTable(*plan),
             Contains("2 sequences of 131072 tokens fit at once: room for their states"));
}

TEST_CASE("replicas of a split plan have seats for as many sequences as they run") {
  const std::string devices =
      GENERATE("{kind: H100-SXM, count: 4}", "{kind: L40S, count: 2}, {kind: H100-SXM, count: 2}");
  INFO(devices);
  const PlannerInput input = tests::OneMachine(devices, Qwen27B());
  PlannerOptions options = tests::Unsimulated();
  options.require_split = true;
  const auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  REQUIRE(plan->replicas_size() >= 2);
  CHECK(plan->prediction().requests_per_second() > 0);
  for (const v1::Replica& replica : plan->replicas()) {
    INFO(replica.ShortDebugString());
    CHECK(replica.role() != v1::REPLICA_ROLE_BOTH);
    CheckSeats(input.model, replica);
    if (replica.role() != v1::REPLICA_ROLE_DECODE) continue;
    // What it is promised to decode has seats, all of the time.
    const auto& p = replica.prediction();
    CHECK(p.requests_per_second() * (plan->basis().output_tokens() - 1) *
              p.time_per_output_token_seconds() <=
          1.01 * static_cast<double>(replica.max_sequences()));
  }
}

TEST_CASE("workers of one machine each keep a tenth of their memory for states of prompts") {
  const PlannerInput input = tests::OneMachine("{kind: H100-SXM, count: 2}", Qwen27B());
  PlannerOptions options = tests::Unsimulated();
  options.runtime_reserve_bytes = 0;  // as on CPUs, whose workers take it from their --memory
  const auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  int workers = 0;
  for (const v1::Replica& replica : plan->replicas()) {
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers()) {
        ++workers;
        const int64_t memory = worker.available_bytes() * 10 / 9;
        CHECK(worker.activation_bytes() >= UsualStateCacheBytes(memory));
        CHECK(worker.weight_bytes() + worker.activation_bytes() + worker.kv_bytes() <=
              worker.available_bytes());
      }
    }
  }
  CHECK(workers == 2);
}

TEST_CASE("states are counted on their way between replicas") {
  const PlannerInput input = tests::OneMachine("{kind: H100-SXM, count: 2}", Qwen27B());
  const auto shape =
      MakeModelShape(input.model, v1::DATA_TYPE_UNSPECIFIED, v1::DATA_TYPE_UNSPECIFIED);
  REQUIRE(shape.ok());
  CHECK(HasOneKvShape(*shape));
  // 48 layers of 48 matrices of 128 x 128 and three rows of the convolution, in float32.
  constexpr double kStateBytes = 48 * (48 * 128 * 128 + 3 * 10240) * 4.0;
  CHECK(StateBytesHandedOver(*shape) == kStateBytes);
  const RawKv kv = HandedOver(*shape, 1000);
  CHECK(kv.bytes == 1000 * KvBytesPerToken(*shape));
  CHECK(WireBytes(kv, KvCodec::kRaw) == kv.bytes + kStateBytes);
  // No codec makes states smaller, and nothing hides them.
  CHECK(WireBytes(kv, KvCodec::kInt8) == Approx(0.53125 * kv.bytes + kStateBytes));
  const LinkSpec link = {.bytes_per_second = 1e9};
  CHECK(TransferKv(kv, link, shape->layers, 1e6, KvCodec::kRaw, {}).unhidden_seconds ==
        Approx(kv.bytes / 1e9 / shape->layers + kStateBytes / 1e9));
}

}  // namespace tessera::scheduler
