#include "scheduler/shares.h"

namespace tessera::scheduler {

v1::WorkerShare WholeModelShare(const v1::Model& model) {
  v1::WorkerShare share;
  share.mutable_layers()->set_end(model.layers());
  share.mutable_query_heads()->set_end(model.heads());
  share.mutable_kv_heads()->set_end(model.kv_heads());
  share.mutable_ffn_columns()->set_end(model.ffn_width());
  share.mutable_vocabulary_rows()->set_end(model.vocabulary());
  share.mutable_experts()->set_end(model.experts().count());
  share.set_holds_embedding(true);
  share.set_holds_head(true);
  return share;
}

}  // namespace tessera::scheduler
