#include "tests/coordinator/staged_plan.h"

#include "proto/layers/layers.h"
#include "tests/fakes/uniform_model.h"

namespace tessera::coordinator {

v1::Model SmallModel(int layers) {
  v1::Model model;
  model.set_name("served");
  tests::SetLayers({.layers = layers,
                    .heads = 4,
                    .kv_heads = 2,
                    .head_dim = 16,
                    .ffn_width = 128,
                    .gated = true},
                   &model);
  model.set_hidden(64);
  model.set_vocabulary(512);
  model.set_max_positions(256);
  return model;
}

v1::DeploymentPlan StagedPlan(const v1::Model& model, const std::vector<int>& widths) {
  v1::DeploymentPlan plan;
  *plan.mutable_model() = model;
  v1::Replica& replica = *plan.add_replicas();
  replica.set_name("r0");
  replica.set_role(v1::REPLICA_ROLE_BOTH);
  const int stages = static_cast<int>(widths.size());
  for (int i = 0; i < stages; ++i) {
    v1::Stage& stage = *replica.add_stages();
    for (int rank = 0; rank < widths[i]; ++rank) {
      v1::PlannedWorker& worker = *stage.add_workers();
      worker.set_device("s" + std::to_string(i) + "r" + std::to_string(rank));
      v1::WorkerShare& share = *worker.mutable_share();
      share.mutable_layers()->set_begin(LayerCount(model) * i / stages);
      share.mutable_layers()->set_end(LayerCount(model) * (i + 1) / stages);
      const auto cut = [&](int64_t whole, v1::Range* range) {
        range->set_begin(whole * rank / widths[i]);
        range->set_end(whole * (rank + 1) / widths[i]);
      };
      const v1::Attention& attention = model.kinds(0).attention();
      v1::LayerShare& part = *share.add_kinds();
      cut(attention.heads(), part.mutable_query_heads());
      const int64_t group = attention.heads() / attention.kv_heads();
      part.mutable_kv_heads()->set_begin(part.query_heads().begin() / group);
      part.mutable_kv_heads()->set_end((part.query_heads().end() + group - 1) / group);
      cut(model.kinds(0).ffn().width(), part.mutable_ffn_columns());
      cut(model.vocabulary(), share.mutable_vocabulary_rows());
      share.set_holds_embedding(i == 0);
      share.set_holds_head(i + 1 == stages);
    }
  }
  return plan;
}

}  // namespace tessera::coordinator
