// One model as the cost model sees it: how many parameters, operations and KV bytes its layers
// have, and what the slowest rank of a stage holds of them.
//
// Thread rule: pure functions of plain values. Units: counts of elements unless a name says bytes.
// Source of formulas: parameters per layer = 2*H*(n*h_d) + 2*H*(n_kv*h_d) + n_mlp*H*F; norms and
// biases (under 0.1 % of any supported model) are left to the runtime reserve.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model.pb.h"

namespace tessera::scheduler {

struct ModelShape {
  std::string name;
  int layers = 0;
  int64_t hidden = 0;             // H
  int64_t heads = 0;              // n
  int64_t kv_heads = 0;           // n_kv
  int64_t head_dim = 0;           // h_d
  int64_t ffn_width = 0;          // F, of dense layers
  int64_t vocabulary = 0;         // V
  int64_t embedding_width = 0;    // H, except where the embedding is projected
  int64_t learned_positions = 0;  // rows of a position table, on every rank of the first stage
  int ffn_matrices = 3;           // n_mlp: 3 gated, 2 plain
  bool tied_embeddings = false;
  int experts = 0;            // E; 0: dense
  int experts_per_token = 0;  // k
  int64_t expert_width = 0;
  std::vector<bool> dense_layer;  // by layer, for models with experts; empty: every layer has them
  int64_t max_positions = 0;      // tokens, 0: no limit
  double weight_bytes_per_element = 2;      // B, int4 matrices aside
  int64_t int4_group_inputs = 0;            // of the layers' matrices; 0: they are not int4
  double kv_bytes_per_element = 2;          // B_kv
  double activation_bytes_per_element = 4;  // in a CPU worker's buffers
  double wire_bytes_per_element = 2;        // of a hidden row between ranks and stages

  bool has_experts(int layer) const {
    return experts > 0 && (dense_layer.empty() || !dense_layer[static_cast<size_t>(layer)]);
  }
  // All layers alike: the cost of a range depends on its length alone.
  bool uniform() const { return experts == 0 || dense_layer.empty(); }
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

// What the fullest rank of a stage of `width` ranks holds. Even shares where the width divides;
// else rounded up. kv heads are replicated where there are fewer than ranks. Experts are split
// whole, between ranks.
struct RankShare {
  int64_t query_heads = 0;
  int64_t kv_heads = 0;
  int64_t ffn_columns = 0;
  int64_t vocabulary_rows = 0;
  int experts = 0;
};
RankShare FullestShare(const ModelShape& model, int width);

// Widest stage that the heads allow: every rank has a query head.
int MaxWidth(const ModelShape& model);

// Per layer, on a rank with `share`.
double AttentionParameters(const ModelShape& model, const RankShare& share);
double DenseFfnParameters(const ModelShape& model, const RankShare& share);
double ExpertParameters(const ModelShape& model);  // of one whole expert
double RouterParameters(const ModelShape& model);  // on every rank
double LayerParameters(const ModelShape& model, const RankShare& share,
                       int layer);  // held in memory

// Expected number of E experts that a step of `tokens` tokens reads.
double ExpertsRead(int experts, int per_token, double tokens);

// Bytes of an element of the layers' matrices: B, or of int4 with its scales.
double MatrixElementBytes(const ModelShape& model);
// Of a layer on a rank with `share`.
double LayerWeightBytes(const ModelShape& model, const RankShare& share, int layer);

// Elements of the embedding or head on a rank.
double VocabularyParameters(const ModelShape& model, const RankShare& share);

// Bytes of KV per token and layer on a rank.
double KvBytesPerTokenLayer(const ModelShape& model, const RankShare& share);
// Bytes of KV per token, all layers and heads once: what travels from prefill to decode.
double KvBytesPerToken(const ModelShape& model);

// Of the whole model, once.
double TotalParameters(const ModelShape& model);
double TotalWeightBytes(const ModelShape& model);

}  // namespace tessera::scheduler
