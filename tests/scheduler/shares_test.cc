#include "scheduler/shares.h"

#include <catch2/catch.hpp>

#include "proto/layers/layers.h"
#include "scheduler/cost/model_shape.h"
#include "scheduler/plan_check/plan_check.h"
#include "tests/fakes/uniform_model.h"

namespace tessera::scheduler {
namespace {

int64_t Size(const v1::Range& range) { return range.end() - range.begin(); }

v1::Model Model(int heads, int kv_heads, int experts) {
  v1::Model model;
  tests::SetLayers(
      {.layers = 3, .heads = heads, .kv_heads = kv_heads, .head_dim = 64, .ffn_width = 1000},
      &model);
  model.set_hidden(64 * heads);
  model.set_vocabulary(997);
  if (experts > 0) {
    v1::Experts& routed = *tests::FfnOf(model).mutable_experts();
    routed.set_count(experts);
    routed.set_per_token(2);
    routed.set_width(1000);
    tests::FfnOf(model).set_width(0);
  }
  return model;
}

void AddStage(const v1::Model& model, int64_t first, int64_t end, int width, v1::DataType weights,
              v1::Replica* replica) {
  v1::Stage* stage = replica->add_stages();
  for (const v1::WorkerShare& share : StageShares(model, first, end, width, weights)) {
    v1::PlannedWorker* worker = stage->add_workers();
    worker->set_device("d" + std::to_string(first) + "/" + std::to_string(stage->workers_size()));
    *worker->mutable_share() = share;
  }
}

// Every width of the first two of three layers, in `weights`.
void CheckEveryWidth(const v1::Model& model, v1::DataType weights) {
  const absl::StatusOr<ModelShape> shape = MakeModelShape(model, weights);
  REQUIRE(shape.ok());
  for (int width = 1; width <= MaxWidth(*shape); ++width) {
    INFO("width " << width);
    v1::DeploymentPlan plan;
    *plan.mutable_model() = model;
    plan.set_weight_dtype(weights);
    v1::Replica* replica = plan.add_replicas();
    replica->set_name("r0");
    replica->set_role(v1::REPLICA_ROLE_BOTH);
    AddStage(model, 0, 2, width, weights, replica);
    AddStage(model, 2, 3, 1, weights, replica);
    CHECK(CheckPlan(plan).message() == "");
    LayerPart fullest;
    int64_t rows = 0;
    for (const v1::PlannedWorker& worker : replica->stages(0).workers()) {
      const v1::WorkerShare& share = worker.share();
      const LayerPart part = PartOf(share.kinds(0));
      CHECK(part.query_heads > 0);
      fullest.query_heads = std::max(fullest.query_heads, part.query_heads);
      fullest.kv_heads = std::max(fullest.kv_heads, part.kv_heads);
      fullest.ffn_columns = std::max(fullest.ffn_columns, part.ffn_columns);
      fullest.experts = std::max(fullest.experts, part.experts);
      rows = std::max(rows, Size(share.vocabulary_rows()));
      if (weights != v1::DATA_TYPE_INT8 && !KeepsInt4(model)) continue;
      const v1::Range& columns = share.kinds(0).ffn_columns();
      CHECK(columns.begin() % 128 == 0);
      if (columns.end() != model.kinds(0).ffn().width()) CHECK(columns.end() % 128 == 0);
    }
    const RankShare predicted = FullestShare(*shape, width);
    CHECK(fullest.query_heads == predicted.kinds[0].query_heads);
    CHECK(fullest.kv_heads == predicted.kinds[0].kv_heads);
    CHECK(fullest.ffn_columns == predicted.kinds[0].ffn_columns);
    CHECK(fullest.experts == predicted.kinds[0].experts);
    CHECK(rows == predicted.vocabulary_rows);
  }
}

TEST_CASE(
    "at every width the ranks cover everything once, and none holds more than the cost model "
    "thinks") {
  for (const auto& [heads, kv_heads, experts] :
       {std::tuple(12, 4, 0), {14, 2, 0}, {16, 16, 8}, {13, 1, 3}}) {
    for (const v1::DataType weights : {v1::DATA_TYPE_BFLOAT16, v1::DATA_TYPE_INT8}) {
      INFO(heads << " heads, " << kv_heads << " kv heads, " << experts << " experts, "
                 << v1::DataType_Name(weights));
      v1::Model model = Model(heads, kv_heads, experts);
      CheckEveryWidth(model, weights);
      if (weights == v1::DATA_TYPE_INT8) continue;
      model.mutable_quantization()->set_group_size(128);
      CheckEveryWidth(model, weights);
    }
  }
}

TEST_CASE("a shared ffn is cut by columns beside whole experts") {
  v1::Model model = Model(16, 16, 8);
  tests::FfnOf(model).set_width(1000);
  for (const v1::DataType weights : {v1::DATA_TYPE_BFLOAT16, v1::DATA_TYPE_INT8}) {
    CheckEveryWidth(model, weights);
  }
  const v1::LayerShare last = StageShares(model, 0, 3, 3, v1::DATA_TYPE_BFLOAT16)[2].kinds(0);
  CHECK(Size(last.ffn_columns()) == 333);
  CHECK(Size(last.experts()) == 2);
}

TEST_CASE("no width leaves a rank without heads, experts or groups of int8 columns") {
  const auto widest = [](const v1::Model& model, v1::DataType weights) {
    return MaxWidth(*MakeModelShape(model, weights));
  };
  CHECK(widest(Model(12, 4, 0), v1::DATA_TYPE_BFLOAT16) == 12);
  CHECK(widest(Model(16, 16, 8), v1::DATA_TYPE_BFLOAT16) == 8);
  CHECK(widest(Model(12, 4, 0), v1::DATA_TYPE_INT8) == 8);  // 1000 columns: 7.8 groups of 128
}

TEST_CASE("a plan that leaves a rank without experts is refused") {
  const v1::Model model = Model(16, 16, 3);
  v1::DeploymentPlan plan;
  *plan.mutable_model() = model;
  v1::Replica* replica = plan.add_replicas();
  replica->set_name("r0");
  replica->set_role(v1::REPLICA_ROLE_BOTH);
  AddStage(model, 0, 3, 4, v1::DATA_TYPE_UNSPECIFIED, replica);
  CHECK_THAT(std::string(CheckPlan(plan).message()),
             Catch::Contains("experts: one of 4 workers holds none of 3"));
}

TEST_CASE("an uneven cut covers all once, and the cost model counts what workers hold") {
  v1::Model latent = Model(16, 1, 0);
  v1::Attention& attention = *latent.mutable_kinds(0)->mutable_attention();
  attention.set_head_dim(576);
  attention.mutable_rope()->set_rotary_dim(64);
  attention.mutable_latent()->set_rank(512);
  attention.mutable_latent()->set_plain_dim(128);
  attention.mutable_latent()->set_value_dim(128);
  for (const v1::Model& model : {Model(32, 8, 0), Model(12, 2, 0), Model(16, 8, 8), latent}) {
    for (const v1::DataType weights : {v1::DATA_TYPE_BFLOAT16, v1::DATA_TYPE_INT8}) {
      const absl::StatusOr<ModelShape> shape = MakeModelShape(model, weights);
      REQUIRE(shape.ok());
      for (const std::vector<double>& fractions :
           {std::vector<double>{0.64, 0.36}, {7, 1}, {0.47, 0.27, 0.26}, {1, 2, 3, 4}}) {
        const int width = static_cast<int>(fractions.size());
        if (width > MaxWidth(*shape)) continue;
        v1::DeploymentPlan plan;
        *plan.mutable_model() = model;
        plan.set_weight_dtype(weights);
        v1::Replica* replica = plan.add_replicas();
        replica->set_name("r0");
        replica->set_role(v1::REPLICA_ROLE_BOTH);
        const auto shares = UnevenStageShares(model, 0, 3, fractions, weights);
        REQUIRE(shares.size() == fractions.size());
        for (const v1::WorkerShare& share : shares) {
          v1::PlannedWorker* worker =
              (replica->stages().empty() ? replica->add_stages() : replica->mutable_stages(0))
                  ->add_workers();
          worker->set_device("d/" + std::to_string(replica->stages(0).workers_size()));
          *worker->mutable_share() = share;
        }
        CHECK(CheckPlan(plan).message() == "");
        const std::vector<RankShare> counted = SharesBy(*shape, fractions);
        for (size_t rank = 0; rank < shares.size(); ++rank) {
          const LayerPart held = PartOf(shares[rank].kinds(0)), said = counted[rank].kinds[0];
          CHECK(held.kv_heads == said.kv_heads);
          // Heads that read one latent are dealt out as kv heads are.
          const v1::Attention& attends = model.kinds(0).attention();
          if (attends.has_latent() || width <= attends.kv_heads())
            CHECK(held.query_heads == said.query_heads);
          if (attends.has_latent() && fractions[0] == 0.64)
            CHECK(held.query_heads == (rank == 0 ? 10 : 6));
          CHECK(held.ffn_columns == said.ffn_columns);
          CHECK(held.experts == said.experts);
          CHECK(Size(shares[rank].vocabulary_rows()) == counted[rank].vocabulary_rows);
        }
      }
    }
  }
}

TEST_CASE("a cut by equal fractions is the even one") {
  const v1::Model model = Model(32, 8, 0);
  const auto even = StageShares(model, 0, 3, 4, v1::DATA_TYPE_BFLOAT16);
  const auto cut =
      UnevenStageShares(model, 0, 3, std::vector<double>{1, 1, 1, 1}, v1::DATA_TYPE_BFLOAT16);
  for (size_t rank = 0; rank < even.size(); ++rank)
    CHECK(even[rank].SerializeAsString() == cut[rank].SerializeAsString());
}

}  // namespace
}  // namespace tessera::scheduler
