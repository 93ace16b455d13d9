// One model as the cost model sees it: how many parameters, operations and KV bytes its layers
// have, and what the slowest rank of a stage holds of them.
//
// Thread rule: pure functions of plain values. Units: counts of elements unless a name says bytes.
// Sizes of layers: proto/layers/layer_sizes.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "proto/layers/layer_sizes.h"
#include "proto/model.pb.h"
#include "scheduler/cost/drafts.h"
#include "scheduler/cost/hardware.h"

namespace tessera::scheduler {

struct ModelShape {
  std::string name;
  int layers = 0;
  std::vector<LayerShape> kinds;   // unlike ones only
  std::vector<int> kind_of_layer;  // index into kinds; empty: all layers are kinds[0]
  // For each kind: tokens that its layers see, and keep apart from those of others
  // (proto/layers/kv_sizes.h); 0: all. Empty: no kind has a window, or none is ever full.
  std::vector<int64_t> windows;
  // Index into kinds: of the layer of the head for further tokens, which workers of the last stage
  // hold; -1: they hold none.
  int draft_kind = -1;
  // The model that drafts for this one, which the first rank of the last stage holds whole, without
  // windows, its KV in this one's elements; null: none does.
  std::shared_ptr<const ModelShape> draft_model;
  Drafts drafts;  // that steps try
  int64_t hidden = 0;
  int64_t vocabulary = 0;
  int64_t embedding_width = 0;    // hidden, except where the embedding is projected
  int64_t learned_positions = 0;  // rows of a position table, on every rank of the first stage
  bool one_stage = false;         // all layers must be on one
  // Columns of a table of what all layers have of a token, and elements of its matrices, which
  // every rank holds.
  int64_t per_layer_columns = 0;
  int64_t per_layer_parameters = 0;
  bool tied_embeddings = false;
  int64_t max_positions = 0;            // tokens, 0: no limit
  double weight_bytes_per_element = 2;  // B, matrices kept as codes aside
  // Inputs that share a scale of the layers' matrices; 0: none of them are kept as codes.
  int64_t code_group_inputs = 0;
  int64_t ffn_unit = 1;  // columns of an ffn that stay together: the inputs of one scale
  // Bytes of codes with scales for an element of these matrices; and the part that is held as B.
  double code_bytes = 0;
  double decoded_part = 0;
  // The type of most of the layers' matrices, and that of all else.
  WeightType matrix_type = WeightType::kHalf, plain_type = WeightType::kHalf;
  double kv_bytes_per_element = 2;          // B_kv
  int64_t kv_scale_bytes = 0;               // KvElement::scale_bytes, of KV in 8 bits
  double activation_bytes_per_element = 4;  // in a CPU worker's buffers
  double wire_bytes_per_element = 2;        // of a hidden row between ranks and stages

  int kind_index(int layer) const {
    return kind_of_layer.empty() ? 0 : kind_of_layer[static_cast<size_t>(layer)];
  }
  const LayerShape& layer(int layer) const { return kinds[static_cast<size_t>(kind_index(layer))]; }
  int64_t window(int layer) const {
    return windows.empty() ? 0 : windows[static_cast<size_t>(kind_index(layer))];
  }
  int64_t longest_window() const {
    return windows.empty() ? 0 : *std::max_element(windows.begin(), windows.end());
  }
  // Any layer keeps a state of each sequence.
  bool keeps_states() const {
    for (const LayerShape& kind : kinds) {
      if (kind.key_groups > 0) return true;
    }
    return false;
  }
  // All layers alike: the cost of a range depends on its length alone.
  bool uniform() const { return kinds.size() == 1; }
};

// dtypes UNSPECIFIED: weights as stored, KV as 16 bits (as the weights, where these are wider).
// The wire type is that of workers with a runtime reserve. InvalidArgument naming the field for a
// shape that cannot be (zero sizes, more kv heads than heads), and for int8 of a model that is
// int4.
absl::StatusOr<ModelShape> MakeModelShape(const v1::Model& model,
                                          v1::DataType weight_dtype = v1::DATA_TYPE_UNSPECIFIED,
                                          v1::DataType kv_dtype = v1::DATA_TYPE_UNSPECIFIED);

// The same with the wire type of workers that have so much runtime reserve (MemoryOptions): CPU
// workers, which have none, send f32; others 16 bits, or as many as weights have.
ModelShape WithWireType(ModelShape shape, double runtime_reserve_bytes);

// Bytes of one element; 2 for UNSPECIFIED.
double BytesPerElement(v1::DataType dtype);

// Bytes of KV that a token leaves in a layer.
double KvTokenBytes(const ModelShape& model, const LayerShape& layer, const LayerPart& part);
// The same of an element, with its part of the scale.
double KvElementBytes(const ModelShape& model);
// Whether KV may be asked for in this type, and has scales.
bool HasKvScales(v1::DataType dtype);

// What the fullest rank of a stage of `width` ranks holds. Even shares where the width divides;
// else rounded up. kv heads are replicated where there are fewer than ranks. Experts are split
// whole, between ranks.
struct RankShare {
  absl::InlinedVector<LayerPart, 2> kinds;  // of each of ModelShape::kinds
  int64_t vocabulary_rows = 0;

  const LayerPart& part(const ModelShape& model, int layer) const {
    return kinds[static_cast<size_t>(model.kind_index(layer))];
  }
};
RankShare FullestShare(const ModelShape& model, int width);

// What each rank holds of a stage that is cut by these fractions, as UnevenStageShares cuts it.
std::vector<RankShare> SharesBy(const ModelShape& model, std::span<const double> fractions);

// Widest stage that the heads, columns and experts of all layers allow: every rank has a part.
int MaxWidth(const ModelShape& model);

// Per layer, on a rank with `share`: held in memory, router included.
double LayerParameters(const ModelShape& model, const RankShare& share, int layer);

// Expected number of E experts that a step of `tokens` tokens reads.
double ExpertsRead(int64_t experts, int64_t per_token, double tokens);

// Bytes of an element of the layers' matrices: B, or of int4 with its scales.
double MatrixElementBytes(const ModelShape& model);
// Bytes of a layer on a rank with `share`.
double LayerWeightBytes(const ModelShape& model, const RankShare& share, int layer);

// Elements of the embedding or head on a rank.
double VocabularyParameters(const ModelShape& model, const RankShare& share);

// Whether KV can travel from one replica to another, as CheckOneKvShape says it.
bool HasOneKvShape(const ModelShape& model);

// Bytes of KV per token of one layer on a rank.
double KvBytesPerTokenLayer(const ModelShape& model, const RankShare& share, int layer);
// The same, of layers that keep every token of a sequence alone, and of layers with windows alone.
double EndlessKvBytesPerTokenLayer(const ModelShape& model, const RankShare& share, int layer);
double WindowKvBytesPerTokenLayer(const ModelShape& model, const RankShare& share, int layer);
// Bytes that a sequence keeps in one layer on a rank however long it is.
double StateBytesPerLayer(const ModelShape& model, const RankShare& share, int layer);
// Bytes of KV per token, all layers and heads once: what travels from prefill to decode.
double KvBytesPerToken(const ModelShape& model);
// Bytes that a sequence of so many tokens keeps at least, all layers and heads once.
double SequenceBytes(const ModelShape& model, double tokens);

// Parameters of the whole model, once.
double TotalParameters(const ModelShape& model);
double TotalWeightBytes(const ModelShape& model);

}  // namespace tessera::scheduler
