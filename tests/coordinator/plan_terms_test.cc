#include "coordinator/deployment/plan_terms.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "scheduler/replicate.h"
#include "tests/coordinator/staged_plan.h"
#include "tests/fakes/uniform_model.h"

namespace tessera::coordinator {
namespace {

using Catch::Matchers::Contains;

// Two devices, a replica each.
struct Terms {
  Terms() {
    *configure.mutable_model() = SmallModel();
    const scheduler::DeviceOffer devices[] = {{"a/0", int64_t{1} << 30}, {"b/0", int64_t{1} << 30}};
    plan = scheduler::OneReplicaPerDevice(SmallModel(), devices);
  }
  std::string Refusal() const { return std::string(CheckPlanTerms(plan, configure).message()); }
  v1::PlannedWorker& Worker(int replica) {
    return *plan.mutable_replicas(replica)->mutable_stages(0)->mutable_workers(0);
  }
  v1::ConfigureRequest configure;
  v1::DeploymentPlan plan;
};

}  // namespace

TEST_CASE("what a plan says about weights and KV reaches Configure; the rest stays as flags say") {
  Terms terms;
  terms.plan.set_weight_dtype(v1::DATA_TYPE_INT8);
  terms.plan.set_kv_dtype(v1::DATA_TYPE_FLOAT32);
  terms.Worker(1).set_kv_bytes(3 << 20);
  terms.plan.mutable_replicas(1)->set_micro_batches(1);
  terms.configure.set_max_sequences(17);
  CHECK(terms.Refusal().empty());
  v1::ConfigureRequest request = terms.configure;
  FillConfigure(terms.plan, terms.plan.replicas(1), 0, 0, request);
  CHECK(request.replica() == "r-b/0");
  CHECK(request.role() == v1::REPLICA_ROLE_BOTH);
  CHECK(request.share().layers().end() == 6);
  CHECK(request.weight_dtype() == v1::DATA_TYPE_INT8);
  CHECK(request.kv_dtype() == v1::DATA_TYPE_FLOAT32);
  CHECK(request.kv_cache_bytes() == 3 << 20);
  CHECK(request.kv_cache_bytes_planned());
  CHECK(request.micro_batches() == 1);
  CHECK(request.max_sequences() == 17);

  CHECK(request.max_batched_tokens() == 512);  // nobody says anything
  terms.plan.mutable_replicas(1)->set_max_batched_tokens(216);
  request = terms.configure;
  FillConfigure(terms.plan, terms.plan.replicas(1), 0, 0, request);
  CHECK(request.max_batched_tokens() == 216);
  terms.configure.set_max_sequences(0);
  request = terms.configure;
  FillConfigure(terms.plan, terms.plan.replicas(1), 0, 0, request);
  CHECK(request.max_sequences() == 64);
  terms.plan.mutable_replicas(1)->set_max_sequences(330);
  request = terms.configure;
  FillConfigure(terms.plan, terms.plan.replicas(1), 0, 0, request);
  CHECK(request.max_sequences() == 330);
  terms.configure.set_max_batched_tokens(64);  // the flag is there to try something else
  request = terms.configure;
  FillConfigure(terms.plan, terms.plan.replicas(1), 0, 0, request);
  CHECK(request.max_batched_tokens() == 64);

  terms.plan.clear_weight_dtype();
  terms.plan.clear_kv_dtype();
  terms.configure.set_weight_dtype(v1::DATA_TYPE_BFLOAT16);
  terms.configure.set_kv_cache_bytes(5 << 20);
  request = terms.configure;
  FillConfigure(terms.plan, terms.plan.replicas(0), 0, 0, request);
  CHECK(request.weight_dtype() == v1::DATA_TYPE_BFLOAT16);
  CHECK(request.kv_cache_bytes() == 5 << 20);
}

TEST_CASE("a plan for another model is refused with both names and the field") {
  Terms terms;
  const scheduler::DeviceOffer device{"a/0", int64_t{1} << 30};
  v1::Model other = SmallModel(8);
  other.set_name("another");
  terms.plan = scheduler::OneReplicaPerDevice(other, {&device, 1});
  CHECK_THAT(terms.Refusal(), Contains("made for another, served is served"));
  CHECK_THAT(terms.Refusal(), Contains("layers = 8"));
  CHECK_THAT(terms.Refusal(), Contains("served has 6"));
}

TEST_CASE("a plan that contradicts a flag is refused, one that agrees is not") {
  Terms terms;
  terms.plan.set_weight_dtype(v1::DATA_TYPE_INT8);
  terms.configure.set_weight_dtype(v1::DATA_TYPE_FLOAT32);
  CHECK_THAT(terms.Refusal(), Contains("DATA_TYPE_INT8 (weight_dtype)") &&
                                  Contains("--quantization asks for DATA_TYPE_FLOAT32"));
  terms.configure.set_weight_dtype(v1::DATA_TYPE_INT8);
  CHECK(terms.Refusal().empty());
  terms.plan.set_kv_dtype(v1::DATA_TYPE_BFLOAT16);
  terms.configure.set_kv_dtype(v1::DATA_TYPE_FLOAT32);
  CHECK_THAT(terms.Refusal(), Contains("--kv-cache-dtype asks for DATA_TYPE_FLOAT32"));
  terms.configure.clear_kv_dtype();
  terms.Worker(1).set_kv_bytes(3 << 20);
  terms.configure.set_kv_cache_bytes(4 << 20);
  CHECK_THAT(terms.Refusal(), Contains("b/0 3145728 bytes") && Contains("asks for 4194304"));
}

TEST_CASE("a plan that has no memory for what drafts is refused, with what makes one that has") {
  Terms terms;
  v1::DraftHead& head = *terms.configure.mutable_model()->mutable_draft_head();
  head.set_used(true);
  CHECK(terms.Refusal().empty());  // its workers' KV takes what is left
  terms.Worker(0).set_kv_bytes(3 << 20);
  CHECK_THAT(terms.Refusal(),
             Contains("head for further tokens") &&
                 Contains("tessera plan --speculate mtp, or use --speculate ngram"));
  terms.plan.mutable_model()->mutable_draft_head()->set_used(true);
  CHECK(terms.Refusal().empty());
  head.set_used(false);
  CHECK(terms.Refusal().empty());
  terms.configure.mutable_model()->mutable_draft_model()->set_folder("/models/small");
  CHECK_THAT(terms.Refusal(),
             Contains("draft model") && Contains("tessera plan --speculate draft:/models/small"));
}

TEST_CASE("stages of any number and unlike widths are carried out, each worker with its share") {
  Terms terms;
  terms.plan = StagedPlan(SmallModel(), {2, 1, 1});
  terms.plan.mutable_replicas(0)->mutable_stages(1)->mutable_workers(0)->set_kv_bytes(7 << 20);
  REQUIRE(terms.Refusal() == "");
  v1::ConfigureRequest request = terms.configure;
  FillConfigure(terms.plan, terms.plan.replicas(0), 0, 1, request);
  CHECK(request.stage() == 0);
  CHECK(request.rank() == 1);
  CHECK(request.share().kinds(0).query_heads().begin() == 2);
  CHECK(request.kv_cache_bytes() == 0);
  CHECK_FALSE(request.kv_cache_bytes_planned());
  request = terms.configure;
  FillConfigure(terms.plan, terms.plan.replicas(0), 1, 0, request);
  CHECK(request.stage() == 1);
  CHECK(request.rank() == 0);
  CHECK(request.share().layers().begin() == 2);
  CHECK(request.share().layers().end() == 4);
  CHECK(request.kv_cache_bytes() == 7 << 20);
  terms.configure.set_kv_cache_bytes(4 << 20);  // whichever worker the plan gives another size
  CHECK_THAT(terms.Refusal(), Contains("s1r0 7340032 bytes"));
}

TEST_CASE("a plan that leaves layers out, holds them twice or uses a device twice is refused") {
  Terms terms;
  terms.plan = StagedPlan(SmallModel(), {2, 1, 1});
  v1::PlannedWorker& last = *terms.plan.mutable_replicas(0)->mutable_stages(2)->mutable_workers(0);
  last.mutable_share()->mutable_layers()->set_begin(5);
  CHECK_THAT(terms.Refusal(), Contains("stage 2") && Contains("do not follow layer 4"));
  last.mutable_share()->mutable_layers()->set_begin(3);
  CHECK_THAT(terms.Refusal(), Contains("stage 2") && Contains("do not follow layer 4"));
  last.mutable_share()->mutable_layers()->set_begin(4);
  CHECK(terms.Refusal() == "");
  last.set_device("s0r1");
  CHECK_THAT(terms.Refusal(), Contains("device s0r1 is used twice"));
}

TEST_CASE("a stage wider than the model allows is refused by device") {
  Terms terms;
  terms.plan = StagedPlan(SmallModel(), {5});
  CHECK_THAT(terms.Refusal(), Contains("replica r0, stage 0") && Contains("query heads"));
  v1::Model many = SmallModel();
  tests::AttentionOf(many).set_heads(16);
  tests::AttentionOf(many).set_kv_heads(16);
  *terms.configure.mutable_model() = many;
  terms.plan = StagedPlan(many, {9});
  CHECK_THAT(terms.Refusal(), Contains("stage 0 has 9 workers") && Contains("at most 8"));
  terms.plan = StagedPlan(many, {8});
  CHECK(terms.Refusal() == "");
}

TEST_CASE("of layers that keep states every worker holds key groups, and no query heads") {
  Terms terms;
  v1::Model hybrid = SmallModel();
  v1::LayerKind* kind = hybrid.mutable_kinds(0);
  kind->clear_attention();
  kind->mutable_delta()->set_key_heads(2);
  kind->mutable_delta()->set_value_heads(4);
  kind->mutable_delta()->set_key_dim(8);
  kind->mutable_delta()->set_value_dim(8);
  kind->mutable_delta()->set_conv_taps(4);
  *terms.configure.mutable_model() = hybrid;
  const auto plan = [&](int width) {
    terms.plan = StagedPlan(SmallModel(), {width});
    *terms.plan.mutable_model() = hybrid;
    v1::Stage& stage = *terms.plan.mutable_replicas(0)->mutable_stages(0);
    for (int rank = 0; rank < width; ++rank) {
      v1::LayerShare& share = *stage.mutable_workers(rank)->mutable_share()->mutable_kinds(0);
      share.clear_query_heads();
      share.clear_kv_heads();
      share.mutable_key_groups()->set_begin(2 * rank / width);
      share.mutable_key_groups()->set_end(2 * (rank + 1) / width);
    }
    return terms.Refusal();
  };
  CHECK(plan(2) == "");
  CHECK_THAT(plan(3), Contains("replica r0, stage 0") && Contains("key groups"));
}

TEST_CASE("a worker that registered less than the plan gives it is refused with the amounts") {
  v1::PlannedWorker worker;
  worker.set_device("b/0");
  worker.set_weight_bytes(700);
  worker.set_kv_bytes(200);
  worker.set_activation_bytes(101);
  CHECK(CheckRoom(worker, 1001).ok());
  CHECK(CheckRoom(worker, 0).ok());
  const absl::Status refused = CheckRoom(worker, 1000);
  CHECK(absl::IsResourceExhausted(refused));
  CHECK_THAT(std::string(refused.message()),
             Contains("gives b/0 1001 bytes (weights 700, KV 200, activations 101)") &&
                 Contains("registered 1000: 1 bytes are missing"));
}

}  // namespace tessera::coordinator
