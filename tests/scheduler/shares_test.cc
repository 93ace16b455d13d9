#include "scheduler/shares.h"

#include <catch2/catch.hpp>

#include "scheduler/cost/model_shape.h"
#include "scheduler/plan_check.h"

namespace tessera::scheduler {
namespace {

v1::Model Model(int heads, int kv_heads, int experts) {
  v1::Model model;
  model.set_layers(3);
  model.set_hidden(64 * heads);
  model.set_heads(heads);
  model.set_kv_heads(kv_heads);
  model.set_head_dim(64);
  model.set_ffn_width(1000);
  model.set_vocabulary(997);
  if (experts > 0) {
    model.mutable_experts()->set_count(experts);
    model.mutable_experts()->set_per_token(2);
    model.mutable_experts()->set_ffn_width(1000);
  }
  return model;
}

void AddStage(const v1::Model& model, int64_t first, int64_t end, int width, v1::Replica* replica) {
  v1::Stage* stage = replica->add_stages();
  for (const v1::WorkerShare& share : StageShares(model, first, end, width)) {
    v1::PlannedWorker* worker = stage->add_workers();
    worker->set_device("d" + std::to_string(first) + "/" + std::to_string(stage->workers_size()));
    *worker->mutable_share() = share;
  }
}

TEST_CASE(
    "at every width the ranks cover everything once, and none holds more than the cost model "
    "thinks") {
  for (const auto& [heads, kv_heads, experts] :
       {std::tuple(12, 4, 0), {14, 2, 0}, {16, 16, 8}, {13, 1, 3}}) {
    const v1::Model model = Model(heads, kv_heads, experts);
    const absl::StatusOr<ModelShape> shape = MakeModelShape(model);
    REQUIRE(shape.ok());
    for (int width = 1; width <= heads; ++width) {
      INFO(heads << " heads, " << kv_heads << " kv heads, width " << width);
      v1::DeploymentPlan plan;
      *plan.mutable_model() = model;
      v1::Replica* replica = plan.add_replicas();
      replica->set_name("r0");
      replica->set_role(v1::REPLICA_ROLE_BOTH);
      AddStage(model, 0, 2, width, replica);
      AddStage(model, 2, 3, 1, replica);
      CHECK(CheckPlan(plan).message() == "");
      RankShare fullest;
      for (const v1::PlannedWorker& worker : replica->stages(0).workers()) {
        const auto size = [](const v1::Range& r) { return r.end() - r.begin(); };
        const v1::WorkerShare& share = worker.share();
        CHECK(size(share.query_heads()) > 0);
        fullest.query_heads = std::max(fullest.query_heads, size(share.query_heads()));
        fullest.kv_heads = std::max(fullest.kv_heads, size(share.kv_heads()));
        fullest.ffn_columns = std::max(fullest.ffn_columns, size(share.ffn_columns()));
        fullest.vocabulary_rows = std::max(fullest.vocabulary_rows, size(share.vocabulary_rows()));
        fullest.experts = std::max(fullest.experts, static_cast<int>(size(share.experts())));
      }
      const RankShare predicted = FullestShare(*shape, width);
      CHECK(fullest.query_heads == predicted.query_heads);
      CHECK(fullest.kv_heads == predicted.kv_heads);
      CHECK(fullest.ffn_columns == predicted.ffn_columns);
      CHECK(fullest.vocabulary_rows == predicted.vocabulary_rows);
      CHECK(fullest.experts == predicted.experts);
    }
  }
}

}  // namespace
}  // namespace tessera::scheduler
