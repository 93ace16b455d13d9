// The weights of one worker's share of a model, packed for its device.
//
// What is read is what the share's ranges name: rows of q, k, v, gate and up, columns of o and
// down, rows of embedding and head, layers, experts. q, k and v become one matrix, gate and up
// another, because one wide product is faster than three. A bias behind a sum over ranks (o, down)
// is held by the rank that holds the first column. Ownership: everything lives in `memory`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "kernels/tensor.h"
#include "worker/weights/background_packing.h"
#include "worker/weights/checkpoint.h"
#include "worker/weights/model_options.h"

namespace tessera::worker {

struct NormWeights {
  kernels::TensorView weight;  // [width] f32
  kernels::TensorView bias;    // LayerNorm only
};

struct LinearWeights {
  kernels::PackedWeights matrix;  // data is null where the model has none
  kernels::TensorView bias;       // optional [out_features] f32
};

// Norms around a block: h += after(block(before(h))), then h = after_residual(h). Absent ones have
// no weight.
struct BlockNorms {
  NormWeights before;
  NormWeights after;
  NormWeights after_residual;
};

struct AttentionWeights {
  BlockNorms norms;
  LinearWeights qkv;  // rows: query heads, key heads, value heads, and the gates of heads
  // Optional f32 [head_dim]; where heads have weights of their own [held heads * head_dim].
  kernels::TensorView q_norm, k_norm;
  kernels::TensorView sinks;  // optional [held query heads] f32
  LinearWeights output;
  // Latent attention, in the place of qkv.
  LinearWeights latent_in;  // rows: the rotated key, the latent, the vector of queries
  NormWeights latent_norm, query_norm;
  LinearWeights query;  // rows of a head: what is not rotated, then what is
  // For each held head: [rank, plain_dim], which turns its query into one of the latent, and
  // [value_dim, rank], which makes its value of the latent.
  std::vector<kernels::PackedWeights> head_queries, head_values;
};

// A gated delta net, with the worker's key groups.
struct DeltaWeights {
  LinearWeights in;                // rows: z, v, q, k
  LinearWeights gates;             // rows: b, a
  kernels::TensorView conv;        // [channels of v, q, k * taps] f32
  kernels::TensorView decay_log;   // [value heads] f32
  kernels::TensorView decay_bias;  // [value heads] f32
  kernels::TensorView norm;        // [value_dim] f32
  LinearWeights output;
};

// `up` and `down`, router and experts, or both.
struct FfnWeights {
  BlockNorms norms;
  LinearWeights up;  // rows: gate, then up; or up alone
  LinearWeights down;
  kernels::PackedWeights shared_gate;  // [1, hidden], optional: of up and down beside experts
  kernels::PackedWeights router;
  kernels::TensorView router_bias;        // optional [experts] f32
  kernels::TensorView router_correction;  // optional [experts] f32
  kernels::TensorView expert_scales;      // optional [experts] f32
  // Norms of v1::Ffn::normed_apart.
  NormWeights dense_after, experts_before, experts_after, router_norm;
  std::vector<kernels::PackedWeights> expert_up;  // gate, then up
  std::vector<kernels::PackedWeights> expert_down;
  // Optional f32, of one expert behind the other: [.. of expert_up], [.. of expert_down].
  kernels::TensorView expert_up_bias, expert_down_bias;
  bool has_experts() const { return !expert_up.empty(); }
  bool has_dense() const { return up.matrix.spec.out_features > 0; }
};

// What of v1::Model::per_layer_width a layer has.
struct PerLayerWeights {
  LinearWeights gate;
  LinearWeights output;
  NormWeights after;
};

struct LayerWeights {
  AttentionWeights attention;  // the norms alone where there is a delta net instead
  DeltaWeights delta;
  FfnWeights ffn;
  PerLayerWeights per_layer;
  float output_scale = 1;  // v1::LayerKind::output_scale
};

// Matrices that the checkpoint has as codes that ops do not compute with.
struct DecodedBytes {
  int64_t stored_bytes = 0;  // of codes, without scales
  int64_t held_bytes = 0;    // in memory
  // Among them, those with groups that Ops::ComputesCodes says no to: how many, the first one's
  // name, and the last one's group.
  int64_t narrow_matrices = 0, narrow_group = 0;
  std::string narrow = {};
};

struct ModelWeights {
  // [vocabulary rows, embedding width]. Empty on stages without it, and where the head's matrix is
  // the same one and keeps its numbers exactly (tied, not int8): then its rows are looked up.
  kernels::TensorView embedding;
  kernels::TensorView positions;  // learned positions, else empty
  LinearWeights project_in;       // embedding width -> hidden, where they differ
  // The table of v1::Model::per_layer_width, all layers' beside each other.
  kernels::TensorView per_layer_table;  // [vocabulary rows, layers * width]
  LinearWeights per_layer_context;      // hidden -> layers * width
  NormWeights per_layer_norm;           // [width]
  std::vector<LayerWeights> layers;
  NormWeights final_norm;
  LinearWeights project_out;
  LinearWeights head;
  // The head for further tokens (v1::DraftHead), which is a model of one layer beside these.
  NormWeights draft_embedding_norm, draft_hidden_norm;
  LinearWeights draft_fuse;
  kernels::Buffer memory;
  DecodedBytes decoded;
  std::unique_ptr<Checkpoint> checkpoint;    // where `later` reads from
  std::unique_ptr<BackgroundPacking> later;  // with ModelOptions::pack_later; null: all is packed
};

// Reads options.share of options.folder. Errors name file and tensor, and come before the first
// byte is read except for weights that are not finite (int8).
absl::StatusOr<std::unique_ptr<ModelWeights>> LoadWeights(
    const ModelOptions& options, kernels::Device& device,
    const std::function<void(int64_t, int64_t)>& progress);
// The same of a checkpoint that is open, and that outlives the weights; options.folder is not used.
// No byte of its tensors outside the share is read.
absl::StatusOr<std::unique_ptr<ModelWeights>> LoadWeights(
    const ModelOptions& options, const Checkpoint& checkpoint, kernels::Device& device,
    const std::function<void(int64_t, int64_t)>& progress);

// The head for further tokens of options.model, beside `model`, which are the weights of the same
// options and outlive it: it shares their embedding and head. Errors name a tensor that is missing.
absl::StatusOr<std::unique_ptr<ModelWeights>> LoadDraftHead(
    const ModelOptions& options, const ModelWeights& model, kernels::Device& device,
    const std::function<void(int64_t, int64_t)>& progress);

}  // namespace tessera::worker
