#include "scheduler/plan_check/plan_check.h"

#include <catch2/catch.hpp>
#include <string>

#include "scheduler/replicate.h"
#include "tests/fakes/uniform_model.h"

namespace tessera::scheduler {
namespace {

v1::Model SmallModel() {
  v1::Model model;
  tests::SetLayers({.layers = 6, .heads = 4, .kv_heads = 2, .ffn_width = 384}, &model);
  model.set_vocabulary(512);
  return model;
}

v1::DeploymentPlan TwoReplicas() {
  const DeviceOffer devices[] = {{"a/0", 1 << 30}, {"b/0", 1 << 30}};
  return OneReplicaPerDevice(SmallModel(), devices);
}

// One replica of two stages, the second two ranks wide with uneven shares.
v1::DeploymentPlan UnevenReplica() {
  v1::DeploymentPlan plan = TwoReplicas();
  plan.mutable_replicas()->DeleteSubrange(1, 1);
  plan.mutable_routing()->DeleteSubrange(1, 1);
  v1::Replica& replica = *plan.mutable_replicas(0);
  v1::WorkerShare whole = replica.stages(0).workers(0).share();
  v1::WorkerShare& first = *replica.mutable_stages(0)->mutable_workers(0)->mutable_share();
  first.mutable_layers()->set_end(4);
  first.set_holds_head(false);
  v1::Stage& second = *replica.add_stages();
  for (int rank = 0; rank < 2; ++rank) {
    v1::PlannedWorker& worker = *second.add_workers();
    worker.set_device("c/" + std::to_string(rank));
    v1::WorkerShare& share = *worker.mutable_share();
    share = whole;
    share.set_holds_embedding(false);
    share.mutable_layers()->set_begin(4);
    tests::PartOf(share).mutable_query_heads()->set_begin(rank == 0 ? 0 : 3);
    tests::PartOf(share).mutable_query_heads()->set_end(rank == 0 ? 3 : 4);
    tests::PartOf(share).mutable_kv_heads()->set_begin(rank);
    tests::PartOf(share).mutable_kv_heads()->set_end(2);
    tests::PartOf(share).mutable_ffn_columns()->set_begin(rank == 0 ? 0 : 256);
    tests::PartOf(share).mutable_ffn_columns()->set_end(rank == 0 ? 256 : 384);
    share.mutable_vocabulary_rows()->set_begin(rank == 0 ? 0 : 500);
    share.mutable_vocabulary_rows()->set_end(rank == 0 ? 500 : 512);
  }
  return plan;
}

std::string Reason(const v1::DeploymentPlan& plan) {
  return std::string(CheckPlan(plan).message());
}

}  // namespace

TEST_CASE("plans that can be carried out pass") {
  CHECK(Reason(TwoReplicas()) == "");
  CHECK(Reason(UnevenReplica()) == "");
}

TEST_CASE("layers must be covered once and in order") {
  v1::DeploymentPlan plan = UnevenReplica();
  plan.mutable_replicas(0)
      ->mutable_stages(0)
      ->mutable_workers(0)
      ->mutable_share()
      ->mutable_layers()
      ->set_end(3);
  CHECK(Reason(plan) == "replica r-a/0, stage 1: layers [4, 6) do not follow layer 3");
  plan = TwoReplicas();
  plan.mutable_replicas(1)
      ->mutable_stages(0)
      ->mutable_workers(0)
      ->mutable_share()
      ->mutable_layers()
      ->set_end(5);
  CHECK(Reason(plan) == "replica r-b/0: its stages end at layer 5 of 6");
}

TEST_CASE("ranks must cover heads, columns and rows exactly once") {
  v1::DeploymentPlan plan = UnevenReplica();
  auto* rank1 = plan.mutable_replicas(0)->mutable_stages(1)->mutable_workers(1)->mutable_share();
  tests::PartOf(*rank1).mutable_ffn_columns()->set_begin(200);
  CHECK(Reason(plan) == "replica r-a/0, stage 1, ffn columns: two workers hold [200, 256)");
  tests::PartOf(*rank1).mutable_ffn_columns()->set_begin(300);
  CHECK(Reason(plan) == "replica r-a/0, stage 1, ffn columns: no worker holds [256, 300)");
  plan = UnevenReplica();
  rank1 = plan.mutable_replicas(0)->mutable_stages(1)->mutable_workers(1)->mutable_share();
  tests::PartOf(*rank1).mutable_kv_heads()->set_begin(2);
  CHECK(Reason(plan) ==
        "replica r-a/0, stage 1, device c/1: its query heads [3, 4) read kv heads [1, 2), it holds "
        "[2, 2)");
}

TEST_CASE("a device serves once, and only with the memory it has") {
  v1::DeploymentPlan plan = TwoReplicas();
  plan.mutable_replicas(1)->mutable_stages(0)->mutable_workers(0)->set_device("a/0");
  CHECK(Reason(plan) == "device a/0 is used twice: by replica r-a/0 and by replica r-b/0");
  plan = TwoReplicas();
  auto* worker = plan.mutable_replicas(0)->mutable_stages(0)->mutable_workers(0);
  worker->set_weight_bytes(3LL << 29);
  CHECK(Reason(plan) ==
        "replica r-a/0, stage 0: device a/0 needs 1.50 GiB (weights 1.50, KV 0.00, activations "
        "0.00) and offers "
        "1.00 GiB: 0.50 GiB are missing");
}

TEST_CASE("KV of unlike layers is not handed over, and layers that need each other are together") {
  v1::DeploymentPlan plan = TwoReplicas();
  plan.mutable_replicas(0)->set_role(v1::REPLICA_ROLE_PREFILL);
  plan.mutable_replicas(1)->set_role(v1::REPLICA_ROLE_DECODE);
  plan.mutable_routing()->DeleteSubrange(1, 1);
  plan.mutable_routing(0)->set_decode_replica(plan.replicas(1).name());
  CHECK(Reason(plan) == "");
  // A kind that no layer is of is a kind too.
  v1::LayerKind other = plan.model().kinds(0);
  other.mutable_attention()->set_head_dim(2);
  *plan.mutable_model()->add_kinds() = other;
  for (v1::Replica& replica : *plan.mutable_replicas()) {
    v1::WorkerShare& share = *replica.mutable_stages(0)->mutable_workers(0)->mutable_share();
    const v1::LayerShare part = share.kinds(0);
    *share.add_kinds() = part;
  }
  CHECK(Reason(plan).starts_with("replica r-a/0 cannot hand KV over, or take it: "));
  // Neither are states of layers that do not attend, unless they are alike.
  v1::LayerKind delta = other;
  delta.clear_attention();
  delta.mutable_delta()->set_key_heads(2);
  delta.mutable_delta()->set_value_heads(2);
  delta.mutable_delta()->set_key_dim(4);
  delta.mutable_delta()->set_value_dim(4);
  delta.mutable_delta()->set_conv_taps(4);
  *plan.mutable_model()->mutable_kinds(1) = delta;
  CHECK_THAT(Reason(plan), !Catch::Contains("cannot hand KV over"));
  const v1::LayerKind attends = plan.model().kinds(0);
  *plan.mutable_model()->mutable_kinds(0) = delta;
  plan.mutable_model()->mutable_kinds(0)->mutable_delta()->set_key_dim(8);
  CHECK_THAT(Reason(plan), Catch::StartsWith("replica r-a/0 cannot hand KV over") &&
                               Catch::Contains("states of unlike layers (gated delta nets)"));
  *plan.mutable_model()->mutable_kinds(0) = attends;
  *plan.mutable_model()->mutable_kinds(1) = other;
  plan.mutable_replicas(0)->set_role(v1::REPLICA_ROLE_BOTH);
  plan.mutable_replicas(1)->set_role(v1::REPLICA_ROLE_BOTH);
  plan.mutable_routing(0)->set_decode_replica(plan.replicas(0).name());
  CHECK(Reason(plan) == "");

  plan = UnevenReplica();
  plan.mutable_model()->set_per_layer_width(1);
  CHECK(Reason(plan).starts_with("replica r-a/0 has 2 stages; a model whose layers borrow"));
}

TEST_CASE("a plan that decodes with too little KV for a request passes, and is warned of") {
  v1::DeploymentPlan plan = TwoReplicas();
  CHECK(ShortKvWarning(plan, 2048) == "");  // it does not say how much it has
  plan.mutable_replicas(0)->mutable_prediction()->set_kv_capacity_tokens(2048);
  plan.mutable_replicas(1)->mutable_prediction()->set_kv_capacity_tokens(384);
  CHECK(ShortKvWarning(plan, 384) == "");
  const std::string warning = ShortKvWarning(plan, 2048);
  CHECK(warning.find("replica " + plan.replicas(1).name() + " decodes with KV for 384 tokens, ") ==
        0);
  CHECK(warning.find("a request may be 2048 long") != std::string::npos);
  plan.mutable_replicas(1)->set_role(v1::REPLICA_ROLE_PREFILL);
  CHECK(ShortKvWarning(plan, 2048) == "");
}

TEST_CASE("steps have as many rows as buffers were sized for, or as the workers take") {
  v1::DeploymentPlan plan = TwoReplicas();
  plan.mutable_replicas(0)->set_max_batched_tokens(2048);
  CHECK(Reason(plan) == "");
  plan.mutable_basis()->set_max_step_tokens(512);
  CHECK(Reason(plan) ==
        "replica r-a/0: max_batched_tokens is 2048, but buffers were sized for steps of 512 rows");
  plan.mutable_replicas(0)->set_max_batched_tokens(-1);
  CHECK_THAT(Reason(plan), Catch::Contains("max_batched_tokens is -1; it must be between 0"));
  plan = TwoReplicas();
  plan.mutable_replicas(0)->set_max_sequences(65537);
  CHECK_THAT(Reason(plan), Catch::Contains("max_sequences is 65537; it must be between 0"));
}

TEST_CASE("figures of a hostile plan are refused, not computed with") {
  v1::DeploymentPlan plan = TwoReplicas();
  // More than query heads: none to a group.
  tests::AttentionOf(*plan.mutable_model()).set_kv_heads(8);
  CHECK_THAT(Reason(plan),
             Catch::Contains("kinds[0].attention.kv_heads (8) must divide heads (4)"));
  tests::AttentionOf(*plan.mutable_model()).set_kv_heads(0);
  CHECK_THAT(Reason(plan),
             Catch::Contains("kinds[0].attention.kv_heads (0) must divide heads (4)"));
  plan = TwoReplicas();
  plan.mutable_model()->mutable_layers(0)->set_kind(1);
  CHECK_THAT(Reason(plan), Catch::Contains("6 layers of kind 1; there are 1 kinds"));
  plan = TwoReplicas();
  plan.mutable_model()->mutable_layers(0)->set_count(INT32_MAX);
  CHECK_THAT(Reason(plan), Catch::Contains("2147483647 layers; there must be 1 to 10000"));
  plan = TwoReplicas();
  plan.mutable_replicas(0)
      ->mutable_stages(0)
      ->mutable_workers(0)
      ->mutable_share()
      ->mutable_kinds()
      ->Clear();
  CHECK_THAT(Reason(plan), Catch::Contains("its share names 0 kinds of layers; the model has 1"));
  plan = TwoReplicas();
  plan.mutable_model()->set_vocabulary(-1);
  CHECK_THAT(Reason(plan), Catch::Contains("negative"));
  plan = TwoReplicas();
  auto* worker = plan.mutable_replicas(0)->mutable_stages(0)->mutable_workers(0);
  worker->set_weight_bytes(INT64_MAX);
  worker->set_kv_bytes(INT64_MAX);
  CHECK_THAT(Reason(plan), Catch::Contains("are missing"));
  worker->set_kv_bytes(-1);
  CHECK_THAT(Reason(plan), Catch::Contains("has -1 bytes"));
}

TEST_CASE("routing names replicas with fitting roles, known codecs, and shares of at most one") {
  v1::DeploymentPlan plan = TwoReplicas();
  plan.mutable_routing(0)->set_kv_codec("int3");
  CHECK(Reason(plan) ==
        "routing from r-a/0 to r-a/0: kv_codec is \"int3\", which is none of raw, int8, int4");
  plan = TwoReplicas();
  plan.mutable_routing(0)->set_share(0.6);
  CHECK(Reason(plan) == "routing shares sum to 1.1; at most 1 can be served");
  plan = TwoReplicas();
  plan.mutable_routing(0)->set_decode_replica("nobody");
  CHECK(Reason(plan) == "routing names replica nobody, which the plan has not");
  plan = TwoReplicas();
  plan.mutable_replicas(0)->set_role(v1::REPLICA_ROLE_DECODE);
  CHECK(Reason(plan) == "routing sends prompts from r-a/0 to r-a/0, against their roles");
  plan.mutable_replicas(0)->set_role(v1::REPLICA_ROLE_UNSPECIFIED);
  CHECK(Reason(plan) == "replica r-a/0 has no role: both, prefill or decode");
}

}  // namespace tessera::scheduler
