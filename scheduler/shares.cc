#include "scheduler/shares.h"

#include <algorithm>

#include "proto/activations.h"
#include "proto/layers/layers.h"

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

void SetHeads(const v1::Attention& attention, int width, int rank, v1::LayerShare* share) {
  const int64_t group = attention.heads() / attention.kv_heads();
  if (width <= attention.kv_heads()) {
    SetPart(attention.kv_heads(), width, rank, share->mutable_kv_heads());
    share->mutable_query_heads()->set_begin(share->kv_heads().begin() * group);
    share->mutable_query_heads()->set_end(share->kv_heads().end() * group);
    return;
  }
  // Ranks are dealt to kv heads, then a head's queries to its ranks.
  for (int64_t head = 0; head < attention.kv_heads(); ++head) {
    v1::Range ranks;
    SetPart(width, attention.kv_heads(), head, &ranks);
    if (rank < ranks.begin() || rank >= ranks.end()) continue;
    share->mutable_kv_heads()->set_begin(head);
    share->mutable_kv_heads()->set_end(head + 1);
    v1::Range queries;
    SetPart(group, ranks.end() - ranks.begin(), rank - ranks.begin(), &queries);
    share->mutable_query_heads()->set_begin(head * group + queries.begin());
    share->mutable_query_heads()->set_end(head * group + queries.end());
  }
}

// Inputs of an ffn's down projection that stay together: those of one scale.
int64_t FfnUnit(const v1::Model& model, v1::DataType weight_dtype) {
  if (KeepsInt4(model)) return Int4GroupInputs(model.quantization().group_size());
  const v1::DataType weights =
      weight_dtype == v1::DATA_TYPE_UNSPECIFIED ? model.dtype() : weight_dtype;
  return weights == v1::DATA_TYPE_INT8 ? kInt8GroupInputs : 1;
}

}  // namespace

v1::WorkerShare WholeModelShare(const v1::Model& model) {
  return StageShares(model, 0, LayerCount(model), 1, v1::DATA_TYPE_UNSPECIFIED)[0];
}

std::vector<v1::WorkerShare> StageShares(const v1::Model& model, int64_t first_layer,
                                         int64_t end_layer, int width, v1::DataType weight_dtype) {
  const int64_t unit = FfnUnit(model, weight_dtype);
  std::vector<v1::WorkerShare> shares(static_cast<size_t>(width));
  for (int rank = 0; rank < width; ++rank) {
    v1::WorkerShare& share = shares[static_cast<size_t>(rank)];
    share.mutable_layers()->set_begin(first_layer);
    share.mutable_layers()->set_end(end_layer);
    for (const v1::LayerKind& kind : model.kinds()) {
      v1::LayerShare* part = share.add_kinds();
      SetHeads(kind.attention(), width, rank, part);
      SetPartOfUnits(kind.ffn().width(), unit, width, rank, part->mutable_ffn_columns());
      SetPart(kind.ffn().experts().count(), width, rank, part->mutable_experts());
    }
    share.set_holds_embedding(first_layer == 0);
    share.set_holds_head(end_layer == LayerCount(model));
    if (share.holds_embedding() || share.holds_head()) {
      SetPart(model.vocabulary(), width, rank, share.mutable_vocabulary_rows());
    }
  }
  return shares;
}

}  // namespace tessera::scheduler
