// The tensors of a model: their names and shapes in a checkpoint, what each is for, and how a
// worker's share cuts it. The one place that knows them: the check of a folder's files and the plan
// of what a worker reads both walk over a model here.
//
// A new tensor of a family is a role (or one more part of a role that is there) and its line in the
// walk; who handles a role handles all families that have it. Pure, thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "proto/model.pb.h"
#include "proto/model/families/tensor_names.h"
#include "proto/model/row_order.h"

namespace tessera {

enum class TensorRole {
  // With the embedding.
  kEmbedding,        // table
  kPositions,        // table
  kProjectIn,        // matrix
  kPerLayerTable,    // table
  kPerLayerContext,  // matrix, from the embedding; rows: of the first layer, of the second, ...
  kPerLayerNorm,     // of each layer's part of that
  // Tensors of a layer: norms around its blocks (v1::NormPlace), then what the blocks multiply
  // with.
  kAttentionBefore,
  kAttentionAfter,
  kAttentionAfterResidual,
  kQkv,  // matrix; rows: query heads, key heads, value heads, and the gates of heads
  kSinks,
  kQNorm,  // weights of one head, or of all of them
  kKNorm,
  kLatentIn,  // matrix; rows: rotated key, latent, and the vector of queries
  kLatentNorm,
  kQueryNorm,
  kQuery,  // matrix
  // Matrix; of each head rows of its key, then of its value. Two parts: of each head its key's
  // columns as rows, and its value's rows.
  kLatentHeads,
  kAttentionOutput,  // matrix
  kDeltaIn,          // matrix; rows: z, v, q, k
  kDeltaGates,       // matrix; rows: b, a
  kDeltaConv,        // taps of each channel of v, q, k
  kDeltaDecayLog,
  kDeltaDecayBias,
  kDeltaNorm,    // weights of one value head
  kDeltaOutput,  // matrix
  kFfnBefore,
  kFfnAfter,
  kFfnAfterResidual,
  kFfnUp,    // matrix; rows: gate, then up; or up alone
  kFfnDown,  // matrix
  kRouter,   // matrix
  kRouterCorrection,
  kRouterNorm,
  kExpertScales,
  kDenseAfter,
  kExpertsBefore,
  kExpertsAfter,
  kSharedGate,  // matrix
  kExpertUp,
  kExpertDown,
  kExpertUpBias,
  kExpertDownBias,
  kPerLayerGate,    // matrix
  kPerLayerOutput,  // matrix
  kPerLayerAfter,
  kOutputScale,  // one number
  // With the head.
  kFinalNorm,
  kProjectOut,  // matrix
  kHead,        // matrix
  // Tensors of a head for further tokens, beside a layer and kFinalNorm of its own.
  kDraftFuse,  // matrix; columns: of the next token's embedding, of the row before
  kDraftEmbeddingNorm,
  kDraftHiddenNorm,
};

// Activations are multiplied with it: it may be stored in any format of matrices, others are plain.
bool IsMatrix(TensorRole role);

// The range of a share (v1::WorkerShare, v1::LayerShare) of which a worker reads its rows or
// columns. kAll: there is none, each worker reads all.
enum class TensorCut { kAll, kVocabulary, kQueryHeads, kKvHeads, kFfnColumns, kKeyGroups };

// One tensor of a checkpoint, or rows of one.
struct TensorPart {
  std::string name;         // without ".weight" and ".bias"
  bool whole_name = false;  // there is no ".weight" behind it
  // In the checkpoint: [outputs, inputs] of a matrix; of a norm [width] or [heads, width], and of a
  // convolution [channels, 1, taps], whose elements are the rows. Before these the number of
  // experts where they are stacked, whose outputs are then numbered through.
  std::vector<int64_t> shape;
  bool inputs_first = false;  // plain elements are [.., inputs, outputs]
  int64_t rows = 0;           // that the model has of it, numbered by `order`
  RowOrder order = {};
  TensorCut cut = TensorCut::kAll;
  int64_t unit = 1;          // rows or columns of one number of the range that cuts
  int64_t number = -1;       // the part is of this number of the range alone; -1: of all
  bool cuts_inputs = false;  // columns: products are summed over the ranks, the bias added once
  RowOrder inputs = {};      // of the columns; pairs none of them
  std::string bias = {};     // without ".bias", where it has another name
};

// The tensor of its weights.
inline std::string WeightsOf(const TensorPart& part) {
  return part.whole_name ? part.name : part.name + ".weight";
}

// The tensor of its bias, where there is one.
inline std::string BiasOf(const TensorPart& part) {
  return (part.bias.empty() ? part.name : part.bias) + ".bias";
}

// Sizes of a matrix; of stacked experts the outputs of all.
inline int64_t InputsOf(const TensorPart& part) {
  return part.inputs_first ? part.shape[part.shape.size() - 2] : part.shape.back();
}
inline int64_t OutputsOf(const TensorPart& part) {
  int64_t elements = 1;
  for (const int64_t size : part.shape) elements *= size;
  return elements / InputsOf(part);
}

// What is computed as one: parts one below the other.
struct ModelTensor {
  TensorRole role = TensorRole::kEmbedding;
  int64_t layer = -1;   // -1: of none
  int64_t expert = -1;  // -1: of none
  std::vector<TensorPart> parts;
  bool bias = false;     // a bias beside each part, of its rows
  float added = 0;       // to each element when it is read
  bool is_rate = false;  // elements are -exp of the model's
};

// The family's names as a checkpoint has them: of alternatives the one that is there.
TensorNames NamesIn(const v1::Model& model, const TensorNames& names,
                    const std::function<bool(const std::string&)>& has, std::string_view root);

// Calls `visit` with each tensor of the model in the order in which the model is computed, until it
// fails. `root` and `names.head` are those of the checkpoint (RootOf, HeadOf).
absl::Status WalkTensors(const v1::Model& model, const TensorNames& names, std::string_view root,
                         const std::function<absl::Status(const ModelTensor&)>& visit);

// The same with those of the model's draft_head, whose layer is number 0: the embedding, which is
// the model's, then its own.
absl::Status WalkDraftHead(const v1::Model& model, const TensorNames& names, std::string_view root,
                           const std::function<absl::Status(const ModelTensor&)>& visit);

}  // namespace tessera
