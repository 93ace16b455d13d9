#include "coordinator/deployment/plan_terms.h"

#include <catch2/catch.hpp>
#include <string>

#include "scheduler/replicate.h"

namespace tessera::coordinator {
namespace {

using Catch::Matchers::Contains;

v1::Model Shape(int layers) {
  v1::Model model;
  model.set_name("served");
  model.set_layers(layers);
  model.set_hidden(64);
  model.set_heads(4);
  model.set_kv_heads(2);
  model.set_head_dim(16);
  model.set_ffn_width(128);
  model.set_gated_ffn(true);
  model.set_vocabulary(512);
  model.set_max_positions(256);
  return model;
}

// Two devices, a replica each.
struct Terms {
  Terms() {
    *configure.mutable_model() = Shape(6);
    const scheduler::DeviceOffer devices[] = {{"a/0", int64_t{1} << 30}, {"b/0", int64_t{1} << 30}};
    plan = scheduler::OneReplicaPerDevice(Shape(6), devices);
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
  terms.configure.set_max_sequences(17);
  CHECK(terms.Refusal().empty());
  v1::ConfigureRequest request = terms.configure;
  ApplyPlan(terms.plan, terms.plan.replicas(1), request);
  CHECK(request.replica() == "r-b/0");
  CHECK(request.role() == v1::REPLICA_ROLE_BOTH);
  CHECK(request.share().layers().end() == 6);
  CHECK(request.weight_dtype() == v1::DATA_TYPE_INT8);
  CHECK(request.kv_dtype() == v1::DATA_TYPE_FLOAT32);
  CHECK(request.kv_cache_bytes() == 3 << 20);
  CHECK(request.max_sequences() == 17);

  CHECK(request.max_batched_tokens() == 512);  // nobody says anything
  terms.plan.mutable_replicas(1)->set_max_batched_tokens(216);
  request = terms.configure;
  ApplyPlan(terms.plan, terms.plan.replicas(1), request);
  CHECK(request.max_batched_tokens() == 216);
  terms.configure.set_max_sequences(0);
  request = terms.configure;
  ApplyPlan(terms.plan, terms.plan.replicas(1), request);
  CHECK(request.max_sequences() == 64);
  terms.plan.mutable_replicas(1)->set_max_sequences(330);
  request = terms.configure;
  ApplyPlan(terms.plan, terms.plan.replicas(1), request);
  CHECK(request.max_sequences() == 330);
  terms.configure.set_max_batched_tokens(64);  // the flag is there to try something else
  request = terms.configure;
  ApplyPlan(terms.plan, terms.plan.replicas(1), request);
  CHECK(request.max_batched_tokens() == 64);

  terms.plan.clear_weight_dtype();
  terms.plan.clear_kv_dtype();
  terms.configure.set_weight_dtype(v1::DATA_TYPE_BFLOAT16);
  terms.configure.set_kv_cache_bytes(5 << 20);
  request = terms.configure;
  ApplyPlan(terms.plan, terms.plan.replicas(0), request);
  CHECK(request.weight_dtype() == v1::DATA_TYPE_BFLOAT16);
  CHECK(request.kv_cache_bytes() == 5 << 20);
}

TEST_CASE("a plan for another model is refused with both names and the field") {
  Terms terms;
  const scheduler::DeviceOffer device{"a/0", int64_t{1} << 30};
  v1::Model other = Shape(8);
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

TEST_CASE("what this build does not carry out is refused by name") {
  Terms terms;
  terms.plan.mutable_routing(0)->set_decode_replica("r-b/0");
  CHECK_THAT(terms.Refusal(), Contains("sends prompts of r-a/0 to r-b/0"));
  CHECK(absl::IsUnimplemented(CheckPlanTerms(terms.plan, terms.configure)));
  terms.plan.mutable_routing(0)->set_decode_replica("r-a/0");
  terms.plan.mutable_replicas(0)->set_role(v1::REPLICA_ROLE_PREFILL);
  terms.plan.mutable_routing()->Clear();
  CHECK_THAT(terms.Refusal(), Contains("r-a/0 only prefills"));
}

}  // namespace tessera::coordinator
