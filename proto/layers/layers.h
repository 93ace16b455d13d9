// The layers of a model: kinds, and runs of them.
//
// Thread rule: pure functions. `layer` counts from the model's first layer and must be one of it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "proto/model.pb.h"
#include "proto/plan.pb.h"

namespace tessera {

// Layers of a model at most: each of them is looked at.
inline constexpr int64_t kMaxLayers = 10'000;

// Groups of experts at most, as kernels/ops.h.
inline constexpr int64_t kMaxExpertGroups = 64;

// Rows that a convolution sees at most, as kernels/ops.h.
inline constexpr int64_t kMaxConvTaps = 8;

// InvalidArgument where a run names no kind or no layer, a kind lacks what every layer has (heads
// or key groups, their width, a dense ffn or experts), a layer borrows keys and values that are not
// there, or there are no layers or more than kMaxLayers.
absl::Status CheckLayers(const v1::Model& model);
// InvalidArgument where groups are none that ops can choose by (kernels/ops.h).
absl::Status CheckGroups(const v1::Experts& experts);

// The functions below require a model that CheckLayers accepts.

int64_t LayerCount(const v1::Model& model);
// Index into Model.kinds.
int KindIndexOf(const v1::Model& model, int64_t layer);
const v1::LayerKind& KindOf(const v1::Model& model, int64_t layer);
// Index into Model.kinds, by layer.
std::vector<int> KindsOfLayers(const v1::Model& model);
// What a rank with `share` holds of `layer`; nothing where the share has no entry for its kind.
const v1::LayerShare& ShareOf(const v1::Model& model, const v1::WorkerShare& share, int64_t layer);

// The layer whose keys and values `layer` reads: itself, or the one that it borrows from; -1: there
// is none.
int64_t KvLayerOf(const v1::Model& model, int64_t layer);

// Whether all layers must be on one stage: some borrow keys and values, or have embeddings of their
// own.
bool NeedsOneStage(const v1::Model& model);

// Appends `count` layers of `kind`, which is added to the kinds unless there is an equal one.
void AppendLayers(const v1::LayerKind& kind, int64_t count, v1::Model* model);

// The model gets a head for further tokens (v1::Model::draft_head) with a layer of that kind,
// behind all of its layers. Without a layer of that kind it gets none.
void SetDraftHead(const v1::LayerKind& kind, v1::Model* model);
// Whether a rank with `share` holds the model's head for further tokens.
bool HoldsDraftHead(const v1::Model& model, const v1::WorkerShare& share);
// The head's layer alone, as a model of the same kinds and sizes, and a rank's share of it.
v1::Model DraftHeadModel(const v1::Model& model);
v1::WorkerShare DraftHeadShare(const v1::WorkerShare& share);

// Whether a rank with `share` holds the model's draft_model, all of it.
bool HoldsDraftModel(const v1::Model& model, const v1::WorkerShare& share);
// The type of a draft model's weights, where the model's is to be `asked`: the same, but where they
// are codes already, which are not made int8.
v1::DataType DraftWeightType(const v1::Model& draft, v1::DataType asked);
// The share of a worker that holds all of a model.
v1::WorkerShare WholeModelShare(const v1::Model& model);

// Whether a layer keeps a state of each sequence, in a seat (proto/layers/kv_sizes.h).
bool KeepsStates(const v1::Model& model);

// Keys and values have one shape in all layers, and each layer keeps its own, and no state: what
// can move between replicas. InvalidArgument naming two kinds that differ.
absl::Status CheckOneKvShape(const v1::Model& model);
// With one KV shape: width of a kv head, and the kv heads that a rank holds of every layer.
int64_t KvHeadDim(const v1::Model& model);
// What is kept of a token in each layer, so wide: keys and values, or 1, a latent.
int KvPlanes(const v1::Model& model);
const v1::Range& KvHeads(const v1::WorkerShare& share);

// Tokens from which on a rope's base grows with a sequence; 0: no kind has such a rope.
int64_t DynamicRopeTokens(const v1::Model& model);

// The same kinds of layers in the same order: a share of one is a share of the other.
bool SameLayers(const v1::Model& a, const v1::Model& b);

// Whether workers compute with the layers' matrices as the int4 codes that the checkpoint has.
bool KeepsInt4(const v1::Model& model);
// Whether they are of several types, or codes of a byte (FP8): code_bytes and decoded_part say what
// an element takes.
bool IsMixed(const v1::Quantization& quantization);
// Inputs of an ffn's down projection that stay together on a rank, those of one scale of the codes
// that workers keep; 1: any may be cut off, or no codes are kept.
int64_t CodeUnitInputs(const v1::Model& model);

// Any kind with routed experts; the most of one layer, and the most that a token uses in one.
bool HasExperts(const v1::Model& model);
int64_t MaxExperts(const v1::Model& model);
int64_t MaxExpertsPerToken(const v1::Model& model);

}  // namespace tessera
