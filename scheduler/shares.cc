#include "scheduler/shares.h"

#include <algorithm>

#include "proto/activations.h"

namespace tessera::scheduler {
namespace {

// Part `i` of [0, total) in `parts`, earlier ones larger.
void SetPart(int64_t total, int64_t parts, int64_t i, v1::Range* range) {
  const int64_t size = total / parts, rest = total % parts;
  range->set_begin(i * size + std::min(i, rest));
  range->set_end((i + 1) * size + std::min(i + 1, rest));
}

// The same in whole units, the last one perhaps shorter.
void SetPartOfUnits(int64_t total, int64_t unit, int64_t parts, int64_t i, v1::Range* range) {
  SetPart((total + unit - 1) / unit, parts, i, range);
  range->set_begin(std::min(total, range->begin() * unit));
  range->set_end(std::min(total, range->end() * unit));
}

void SetHeads(const v1::Model& model, int width, int rank, v1::WorkerShare* share) {
  const int64_t group = model.heads() / model.kv_heads();
  if (width <= model.kv_heads()) {
    SetPart(model.kv_heads(), width, rank, share->mutable_kv_heads());
    share->mutable_query_heads()->set_begin(share->kv_heads().begin() * group);
    share->mutable_query_heads()->set_end(share->kv_heads().end() * group);
    return;
  }
  // Ranks are dealt to kv heads, then a head's queries to its ranks.
  for (int64_t head = 0; head < model.kv_heads(); ++head) {
    v1::Range ranks;
    SetPart(width, model.kv_heads(), head, &ranks);
    if (rank < ranks.begin() || rank >= ranks.end()) continue;
    share->mutable_kv_heads()->set_begin(head);
    share->mutable_kv_heads()->set_end(head + 1);
    v1::Range queries;
    SetPart(group, ranks.end() - ranks.begin(), rank - ranks.begin(), &queries);
    share->mutable_query_heads()->set_begin(head * group + queries.begin());
    share->mutable_query_heads()->set_end(head * group + queries.end());
  }
}

}  // namespace

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

std::vector<v1::WorkerShare> StageShares(const v1::Model& model, int64_t first_layer,
                                         int64_t end_layer, int width, v1::DataType weight_dtype) {
  const v1::DataType weights =
      weight_dtype == v1::DATA_TYPE_UNSPECIFIED ? model.dtype() : weight_dtype;
  int64_t unit = weights == v1::DATA_TYPE_INT8 ? kInt8GroupInputs : 1;
  if (model.has_quantization()) unit = Int4GroupInputs(model.quantization().group_size());
  std::vector<v1::WorkerShare> shares(static_cast<size_t>(width));
  for (int rank = 0; rank < width; ++rank) {
    v1::WorkerShare& share = shares[static_cast<size_t>(rank)];
    share.mutable_layers()->set_begin(first_layer);
    share.mutable_layers()->set_end(end_layer);
    SetHeads(model, width, rank, &share);
    SetPartOfUnits(model.ffn_width(), unit, width, rank, share.mutable_ffn_columns());
    SetPart(model.experts().count(), width, rank, share.mutable_experts());
    share.set_holds_embedding(first_layer == 0);
    share.set_holds_head(end_layer == model.layers());
    if (share.holds_embedding() || share.holds_head()) {
      SetPart(model.vocabulary(), width, rank, share.mutable_vocabulary_rows());
    }
  }
  return shares;
}

}  // namespace tessera::scheduler
