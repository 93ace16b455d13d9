// How much a layer holds, computes and keeps: derived here once, for workers, cost model, shares
// and plan_check.
//
// Thread rule: pure functions of plain values. Units: counts of elements. Source of formulas: a
// layer's matrices hold 2*H*(n*h_d) + 2*H*(n_kv*h_d) + n_mlp*H*F elements (another H*(n*h_d) where
// heads are gated; of a delta net H times the columns of all key groups; of latent attention
// H*latent_columns + n*(query_inputs*query_dim + rank*(plain + value) + H*value)); norms and biases
// (under 0.1 % of any supported model) are not counted.
#pragma once

#include <cstdint>

#include "proto/model.pb.h"
#include "proto/plan.pb.h"

namespace tessera {

// One kind of layer in numbers.
struct LayerShape {
  int64_t hidden = 0;             // H
  int64_t heads = 0;              // n
  int64_t kv_heads = 0;           // n_kv
  int64_t head_dim = 0;           // h_d
  int64_t ffn_width = 0;          // F; 0: no dense ffn
  int64_t ffn_matrices = 3;       // n_mlp: 3 gated, 2 plain
  int64_t experts = 0;            // E; 0: none
  int64_t experts_per_token = 0;  // k
  int64_t expert_width = 0;
  int64_t summed_numbers = 0;  // of a token, f32, that ranks sum before they attend
  bool borrows_kv = false;     // v1::Attention's
  // The part of a row, f32, that workers need for this layer beside what all layers need.
  int64_t further_row_floats = 0;
  int64_t gated_heads = 0;  // heads whose output has a gate: all, or none
  // A gated delta net has no heads but key groups; a key group is a key head with its value heads.
  int64_t key_groups = 0;
  int64_t group_columns = 0;         // of q, k, v and z
  int64_t group_values = 0;          // of v
  int64_t group_gates = 0;           // of b and a
  int64_t group_state_elements = 0;  // f32: the state and the last rows of the convolution
  int64_t conv_taps = 0;
  // What is kept of a token, each head_dim wide: keys and values, or a latent that is both.
  int64_t kv_planes = 2;
  // Latent attention; query_dim 0: it is another one.
  int64_t latent_columns = 0;  // rotated key, latent and query's vector: every rank projects to all
  int64_t latent_rank = 0;
  int64_t query_inputs = 0;  // that queries are projected from
  int64_t query_dim = 0;     // of a head's query
  int64_t plain_dim = 0;     // of these, not rotated
  int64_t value_dim = 0;     // of a head's value

  bool operator==(const LayerShape&) const = default;
};
LayerShape ShapeOf(const v1::Model& model, const v1::LayerKind& kind);

// How much of a layer a rank holds.
struct LayerPart {
  int64_t query_heads = 0;
  int64_t kv_heads = 0;
  int64_t ffn_columns = 0;
  int64_t experts = 0;
  int64_t key_groups = 0;
};
LayerPart WholeLayer(const LayerShape& layer);
LayerPart PartOf(const v1::LayerShare& share);

// Elements of matrices on a rank.
double MixerParameters(const LayerShape& layer, const LayerPart& part);
double DenseFfnParameters(const LayerShape& layer, const LayerPart& part);
double ExpertParameters(const LayerShape& layer);  // of one whole expert
double RouterParameters(const LayerShape& layer);  // on every rank
// Attention or a delta net, and ffn or experts; without the router, which is never quantised.
double MatrixParameters(const LayerShape& layer, const LayerPart& part);
// The part of these that one token uses.
double MatrixParametersUsed(const LayerShape& layer, const LayerPart& part);

// Elements of keys and values that a token leaves in a layer.
int64_t KvElementsPerToken(const LayerShape& layer, const LayerPart& part);

// How a number of a key or value is kept.
struct KvElement {
  KvElement(int64_t bytes, int64_t scale_bytes = 0) : bytes(bytes), scale_bytes(scale_bytes) {}

  int64_t bytes;
  // The scale that a token's key, or value, of one head has behind its numbers, which then begin
  // and end at multiples of so many bytes; 0: it has none (kernels/kv_rows.h).
  int64_t scale_bytes;
};
inline constexpr int64_t kKvScaleBytes = 4;
inline KvElement KvCodeElement() { return {1, kKvScaleBytes}; }

// Bytes of them.
int64_t KvBytesPerToken(const LayerShape& layer, const LayerPart& part, const KvElement& element);
// Elements, of f32, that a sequence keeps in a layer however long it is.
int64_t StateElements(const LayerShape& layer, const LayerPart& part);
inline constexpr int64_t kStateElementBytes = 4;

// Elements of the embedding table on the first stage, of the head on the last one; and of a table
// of positions, which every rank of the first stage holds.
double VocabularyParameters(const v1::Model& model, int64_t vocabulary_rows);
int64_t LearnedPositions(const v1::Model& model);
// What all layers have of a token from tables of their own: columns of the table, of which a rank
// holds its vocabulary rows; and elements of the matrices, of which every rank holds all.
int64_t PerLayerColumns(const v1::Model& model);
int64_t PerLayerParameters(const v1::Model& model);

}  // namespace tessera
