#include "scheduler/shares.h"

#include <algorithm>

#include "proto/activations.h"
#include "proto/layers/layers.h"
#include "scheduler/apportion.h"

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

// Heads of what attends, key groups of what does not.
void SetMixer(const v1::LayerKind& kind, int width, int rank, v1::LayerShare* share) {
  if (kind.has_delta()) {
    return SetPart(kind.delta().key_heads(), width, rank, share->mutable_key_groups());
  }
  const v1::Attention& attention = kind.attention();
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

// Range `rank` of counts that lie one after the other.
v1::Range RangeOf(const std::vector<int64_t>& counts, size_t rank) {
  v1::Range range;
  for (size_t r = 0; r < rank; ++r) range.set_begin(range.begin() + counts[r]);
  range.set_end(range.begin() + counts[rank]);
  return range;
}

// Inputs of an ffn's down projection that stay together: those of one scale.
int64_t FfnUnit(const v1::Model& model, v1::DataType weight_dtype) {
  const v1::DataType weights =
      weight_dtype == v1::DATA_TYPE_UNSPECIFIED ? model.dtype() : weight_dtype;
  const bool int8 = weights == v1::DATA_TYPE_INT8 && !KeepsInt4(model);
  return int8 ? kInt8GroupInputs : CodeUnitInputs(model);
}

}  // namespace

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
      SetMixer(kind, width, rank, part);
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

std::vector<v1::WorkerShare> UnevenStageShares(const v1::Model& model, int64_t first_layer,
                                               int64_t end_layer, std::span<const double> fractions,
                                               v1::DataType weight_dtype) {
  const int width = static_cast<int>(fractions.size());
  const int64_t unit = FfnUnit(model, weight_dtype);
  // Layers, tables and heads that outnumber no rank are as in an even cut.
  std::vector<v1::WorkerShare> shares =
      StageShares(model, first_layer, end_layer, width, weight_dtype);
  for (int k = 0; k < model.kinds_size(); ++k) {
    const v1::Attention& attention = model.kinds(k).attention();
    const v1::Ffn& ffn = model.kinds(k).ffn();
    const bool attends = !model.kinds(k).has_delta();
    const int64_t group = attends ? attention.heads() / attention.kv_heads() : 0;
    const std::vector<int64_t> groups = Apportion(model.kinds(k).delta().key_heads(), fractions);
    const std::vector<int64_t> heads = Apportion(attention.kv_heads(), fractions);
    // A latent is on every rank, whatever part of the heads reads it there.
    const bool latent = attention.has_latent();
    const std::vector<int64_t> readers = Apportion(latent ? attention.heads() : 0, fractions);
    const std::vector<int64_t> units = Apportion((ffn.width() + unit - 1) / unit, fractions);
    const std::vector<int64_t> experts = Apportion(ffn.experts().count(), fractions);
    for (size_t rank = 0; rank < shares.size(); ++rank) {
      v1::LayerShare& part = *shares[rank].mutable_kinds(k);
      if (!attends) *part.mutable_key_groups() = RangeOf(groups, rank);
      if (latent) {
        *part.mutable_query_heads() = RangeOf(readers, rank);
      } else if (attends && width <= attention.kv_heads()) {
        *part.mutable_kv_heads() = RangeOf(heads, rank);
        part.mutable_query_heads()->set_begin(part.kv_heads().begin() * group);
        part.mutable_query_heads()->set_end(part.kv_heads().end() * group);
      }
      v1::Range& columns = *part.mutable_ffn_columns();
      columns = RangeOf(units, rank);
      columns.set_begin(std::min<int64_t>(ffn.width(), columns.begin() * unit));
      columns.set_end(std::min<int64_t>(ffn.width(), columns.end() * unit));
      *part.mutable_experts() = RangeOf(experts, rank);
    }
  }
  const std::vector<int64_t> rows = Apportion(model.vocabulary(), fractions);
  for (size_t rank = 0; rank < shares.size(); ++rank) {
    if (shares[rank].holds_embedding() || shares[rank].holds_head())
      *shares[rank].mutable_vocabulary_rows() = RangeOf(rows, rank);
  }
  return shares;
}

}  // namespace tessera::scheduler
