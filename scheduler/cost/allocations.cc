#include "scheduler/cost/allocations.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "proto/activations.h"
#include "scheduler/cost/layer_sums.h"

namespace tessera::scheduler {
namespace {

constexpr int64_t kFloat = 4;
constexpr int64_t kAlignment = 64;

// Threads whose scratch is charged. What more of them need is left to the part of the memory that
// plans leave unused (MemoryOptions::utilisation): machines with many cores have much of it.
constexpr int64_t kThreads = 2;

// Sizes of the packed layout (kernels/cpu/linear/geometry.h).
constexpr int64_t kPanelColumns = 32, kTileInputs = 32, kBlockWords = 128, kChunkRows = 512;

// Sizes of attention's workspace (kernels/cpu/simd/attention_plan.h, attention_tiles.h).
constexpr int64_t kQueryRows = 64, kTileKeys = 64, kPartitionKeys = 2048, kItemBytes = 64;
constexpr int64_t kSumsFloats = 65536, kItemsPerThread = 4;

// Sizes of the sampler (worker/step/sampler.h).
constexpr int64_t kListEntries = 65536, kLogprobRows = 16, kTopLogprobs = 100, kRowBytes = 64;

// Sizes of groups that share memory (kernels/collectives): two slots a rank.
constexpr int64_t kSlotBytes = (256 << 10) + 4096;

// Tokens of a block, where a step's tables are largest; a context where the model has no limit.
constexpr int64_t kBlockTokens = 16, kUnlimitedContext = 131072;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t RoundUp(int64_t value, int64_t multiple) { return CeilDiv(value, multiple) * multiple; }

enum class Weights { kF32, kHalf, kInt8, kInt4 };

// Weights of tables and the head.
Weights WeightsOf(const ModelShape& model) {
  if (model.weight_bytes_per_element >= 4) return Weights::kF32;
  return model.weight_bytes_per_element >= 2 ? Weights::kHalf : Weights::kInt8;
}

// A matrix of a linear, as workers pack it; `group`: inputs of an int4 scale.
int64_t PackedBytes(Weights weights, int64_t in, int64_t out, int64_t group = kInt8GroupInputs) {
  const int64_t columns = RoundUp(out, kPanelColumns);
  switch (weights) {
    case Weights::kF32: return columns * in * kFloat + kAlignment;
    case Weights::kHalf: return columns * RoundUp(in, kTileInputs) * 2 + kAlignment;
    case Weights::kInt4:
      return columns * (CeilDiv(in, 2) + CeilDiv(in, group) * kFloat) + kAlignment;
    default:
      return columns * (RoundUp(in, 2) + CeilDiv(in, kInt8GroupInputs) * kFloat) + kAlignment;
  }
}

// One of a layer's matrices, of which a part may be decoded; `group`: inputs that share a scale.
// Groups that are cut have more scales.
int64_t MatrixBytes(const ModelShape& model, int64_t in, int64_t out, int64_t group) {
  if (model.code_group_inputs == 0) return PackedBytes(WeightsOf(model), in, out);
  const double of_codes = model.code_bytes / Int4ElementBytes(model.code_group_inputs) *
                          static_cast<double>(PackedBytes(Weights::kInt4, in, out, group));
  const auto decoded = static_cast<double>(PackedBytes(WeightsOf(model), in, out));
  return static_cast<int64_t>(of_codes + model.decoded_part * decoded);
}

// Inputs of the widest linear on a rank with `share`.
int64_t WidestInput(const ModelShape& model, const RankShare& share) {
  int64_t widest = std::max(model.hidden, model.embedding_width);
  for (size_t i = 0; i < model.kinds.size(); ++i) {
    const LayerShape& layer = model.kinds[i];
    const LayerPart& part = share.kinds[i];
    widest =
        std::max({widest, part.query_heads * layer.head_dim, part.ffn_columns, layer.expert_width,
                  part.key_groups * layer.group_values, layer.query_inputs});
  }
  return widest;
}

int64_t LinearWorkspaceBytes(const ModelShape& model, const RankShare& share, int64_t rows) {
  const int64_t inputs = WidestInput(model, share);
  return std::min(rows, kChunkRows) * RoundUp(inputs, kBlockWords) * kFloat +
         kThreads * RoundUp(inputs, kTileInputs) * kPanelColumns * 2;
}

int64_t ContextTokens(const ModelShape& model) {
  return model.max_positions > 0 ? model.max_positions : kUnlimitedContext;
}

// A step's tables are rounded up to a power of two.
int64_t TableTokens(const ModelShape& model) {
  const auto blocks = static_cast<uint64_t>(CeilDiv(ContextTokens(model), kBlockTokens));
  return static_cast<int64_t>(std::bit_ceil(blocks)) * kBlockTokens;
}

int64_t AttentionWorkspaceBytes(const ModelShape& model, const LayerShape& layer,
                                const LayerPart& part, int64_t rows, int64_t sequences) {
  if (part.kv_heads == 0) return 0;
  const int64_t width = RoundUp(layer.head_dim, 32);
  const int64_t group = std::max<int64_t>(1, part.query_heads / part.kv_heads);
  const int64_t heads_per_item = std::min(group, kQueryRows);
  const int64_t tokens_per_item = std::max<int64_t>(1, kQueryRows / heads_per_item);
  const int64_t items = std::min(rows, rows / tokens_per_item + sequences) * part.kv_heads *
                        CeilDiv(group, heads_per_item);
  const int64_t shared = std::min(items, kItemsPerThread * kThreads) *
                         (CeilDiv(TableTokens(model), kPartitionKeys) + 1) * kQueryRows *
                         (width + 2);
  const int64_t item_rows = std::max(kQueryRows, kSumsFloats / width);
  const int64_t scratch = 5 * item_rows * width / 2 + 4 * item_rows +
                          (2 * kQueryRows + 4 * kTileKeys) * width + 2 * kQueryRows * kTileKeys;
  return items * kItemBytes + shared * kFloat + kThreads * (scratch * kFloat + kAlignment);
}

// What a row takes: queries of the latent, then what they read or what they are made from.
int64_t LatentFloats(const LayerShape& layer, const LayerPart& part) {
  if (layer.query_dim == 0) return 0;
  const int64_t read = part.query_heads * layer.head_dim;
  return read + std::max(read, layer.latent_columns + part.query_heads * layer.query_dim);
}

// Floats of one row of a step in every buffer of the forward pass.
int64_t FloatsPerRow(const ModelShape& model, const RankShare& share) {
  int64_t wide = 0, inner = 0, rotation = 0, routed = 0, further = 0;
  for (size_t i = 0; i < model.kinds.size(); ++i) {
    const LayerShape& layer = model.kinds[i];
    const LayerPart& part = share.kinds[i];
    const int64_t d = layer.head_dim, up = layer.ffn_matrices - 1;
    const int64_t columns =
        std::max(part.ffn_columns, layer.experts_per_token * layer.expert_width);
    // What gated heads read stands behind their gates.
    const int64_t gated = layer.gated_heads > 0 ? 2 * part.query_heads : 0;
    wide = std::max({wide, (part.query_heads + 2 * part.kv_heads + gated) * d, up * columns,
                     part.key_groups * layer.group_columns, LatentFloats(layer, part)});
    const int64_t read = layer.query_dim > 0 ? layer.value_dim : d;
    inner = std::max({inner, part.query_heads * read, columns, part.key_groups * layer.group_values,
                      part.key_groups * layer.group_gates});
    rotation = std::max(rotation, d - layer.latent_rank);  // cosines and sines
    further = std::max(further, layer.further_row_floats);
    if (layer.query_dim > 0) further = std::max(further, part.query_heads);
    if (layer.experts > 0) {
      routed = std::max(routed, 1 + layer.experts + layer.experts_per_token * (3 + model.hidden));
    }
  }
  int64_t floats = 3 * model.hidden + std::max(wide, model.per_layer_columns) + inner + rotation +
                   routed + further + model.per_layer_columns;
  if (model.embedding_width != model.hidden) floats += model.embedding_width;
  return floats;
}

// The most of any kind.
int64_t MaxExperts(const ModelShape& model) {
  int64_t most = 0;
  for (const LayerShape& layer : model.kinds) most = std::max(most, layer.experts);
  return most;
}
int64_t MaxExpertsPerToken(const ModelShape& model) {
  int64_t most = 0;
  for (const LayerShape& layer : model.kinds) most = std::max(most, layer.experts_per_token);
  return most;
}

int64_t LogitBytes(const ModelShape& model, const StageSpec& stage, const RankShare& share,
                   int64_t rows) {
  if (!stage.holds_head) return 0;
  int64_t floats = model.hidden + share.vocabulary_rows;
  if (model.embedding_width != model.hidden) floats += model.embedding_width;
  // Rank 0 gathers whole rows of the logits: as they come, and in order.
  if (stage.width() > 1) floats += 2 * model.vocabulary;
  return rows * floats * kFloat;
}

// Matrices and norms of latent attention. Those of each head are elements whatever the files have.
int64_t LatentBytes(const ModelShape& model, const LayerShape& shape, const LayerPart& part) {
  const int64_t heads = part.query_heads, group = model.code_group_inputs;
  const auto of_head = [&](int64_t in, int64_t out) {
    return PackedBytes(WeightsOf(model), in, out);
  };
  return MatrixBytes(model, model.hidden, shape.latent_columns, group) +
         MatrixBytes(model, shape.query_inputs, heads * shape.query_dim, group) +
         heads * (of_head(shape.plain_dim, shape.latent_rank) +
                  of_head(shape.latent_rank, shape.value_dim)) +
         MatrixBytes(model, heads * shape.value_dim, model.hidden,
                     std::gcd(group, shape.value_dim)) +
         shape.latent_columns * kFloat + 4 * kAlignment;
}

// Matrices, norms and biases of one layer.
int64_t LayerBytes(const ModelShape& model, const LayerShape& shape, const LayerPart& part) {
  const auto packed = [&model](int64_t in, int64_t out) {
    return MatrixBytes(model, in, out, model.code_group_inputs);
  };
  const int64_t d = shape.head_dim, up = shape.ffn_matrices - 1, hidden = model.hidden;
  const int64_t values = part.key_groups * shape.group_values;
  const int64_t q = part.query_heads * d + values, gates = part.key_groups * shape.group_gates;
  const int64_t qkv = (shape.gated_heads > 0 ? 2 : 1) * part.query_heads * d +
                      (shape.borrows_kv ? 0 : 2 * part.kv_heads * d) +
                      part.key_groups * shape.group_columns;
  // Heads of ranks may begin within a group of inputs, which is cut there.
  const int64_t unit = std::max(d, shape.group_values);
  const int64_t output = MatrixBytes(model, q, hidden, std::gcd(model.code_group_inputs, unit));
  const int64_t norms = shape.further_row_floats > 0 ? 10 * hidden : 6 * hidden;
  const int64_t vectors =
      norms + 2 * d + qkv * (1 + shape.conv_taps) + 2 * gates + up * part.ffn_columns;
  const int64_t mixer =
      shape.query_dim > 0 ? LatentBytes(model, shape, part) : packed(hidden, qkv) + output;
  int64_t bytes = mixer + vectors * kFloat + 14 * kAlignment;
  if (gates > 0) bytes += packed(hidden, gates);
  if (shape.ffn_width > 0) {
    bytes += packed(hidden, up * part.ffn_columns) + packed(part.ffn_columns, hidden);
  }
  if (shape.experts == 0) return bytes;
  // Router, the gate of a shared ffn, biases of the choice.
  return bytes + PackedBytes(Weights::kF32, hidden, shape.experts) +
         (shape.ffn_width > 0 ? PackedBytes(Weights::kF32, hidden, 1) : 0) +
         (2 * shape.experts * kFloat + 2 * kAlignment) +
         part.experts *
             (packed(hidden, up * shape.expert_width) + packed(shape.expert_width, hidden));
}

int64_t LayerBytes(const ModelShape& model, const RankShare& share, int layer) {
  return LayerBytes(model, model.layer(layer), share.part(model, layer));
}

// The head for further tokens: its layer, what fuses its inputs, and the embedding where the stage
// has none that serves it.
int64_t DraftHeadBytes(const ModelShape& model, const StageSpec& stage, const RankShare& share) {
  if (model.draft_kind < 0 || !stage.holds_head) return 0;
  const auto kind = static_cast<size_t>(model.draft_kind);
  const Weights weights = WeightsOf(model);
  const bool own_table =
      !stage.holds_embedding && (!model.tied_embeddings || weights == Weights::kInt8);
  const int64_t table_element = weights == Weights::kF32 ? 4 : 2;
  return LayerBytes(model, model.kinds[kind], share.kinds[kind]) +
         MatrixBytes(model, 2 * model.hidden, model.hidden, model.code_group_inputs) +
         6 * model.hidden * kFloat + 6 * kAlignment +
         (own_table ? share.vocabulary_rows * model.embedding_width * table_element : 0);
}

// What layers have of a token: from the embedding, to each layer and from it.
int64_t PerLayerMatrixBytes(const ModelShape& model) {
  if (model.per_layer_columns == 0) return 0;
  const Weights weights = WeightsOf(model);
  const int64_t width = model.per_layer_columns / model.layers;
  const int64_t of_layer = PackedBytes(weights, model.hidden, width) +
                           PackedBytes(weights, width, model.hidden) + model.hidden * kFloat +
                           kAlignment;
  return PackedBytes(weights, model.hidden, model.per_layer_columns) + model.layers * of_layer +
         width * kFloat + 2 * kAlignment;
}

// The weights of a rank as they are allocated.
double AllocatedWeightBytes(const ModelShape& model, const StageSpec& stage,
                            const RankShare& share) {
  const double bytes = SumOverLayers(model, stage.first_layer, stage.layers, [&](int layer) {
    return static_cast<double>(LayerBytes(model, share, layer));
  });
  const Weights weights = WeightsOf(model);
  const int64_t width = model.embedding_width;
  const int64_t table_element = weights == Weights::kF32 ? 4 : 2;
  const int64_t projection =
      width == model.hidden ? 0 : PackedBytes(weights, width, model.hidden) + kAlignment;
  const bool one_table = model.tied_embeddings && stage.holds_embedding && stage.holds_head &&
                         weights != Weights::kInt8;
  int64_t rest = 0;
  if (stage.holds_embedding) {
    rest += projection + model.learned_positions * model.hidden * table_element;
    rest += share.vocabulary_rows * model.per_layer_columns * table_element +
            PerLayerMatrixBytes(model);
    if (!one_table) rest += share.vocabulary_rows * width * table_element + 2 * kAlignment;
  }
  if (stage.holds_head) {
    rest += PackedBytes(weights, width, share.vocabulary_rows) +
            PackedBytes(weights, model.hidden, width == model.hidden ? 0 : width) +
            2 * model.hidden * kFloat + 2 * kAlignment;
  }
  return bytes + static_cast<double>(rest + DraftHeadBytes(model, stage, share));
}

// Two steps' arrays: one that runs and one that is filled.
int64_t StagingBytes(const ModelShape& model, const MemoryOptions& options) {
  const int64_t rows = options.max_step_tokens, sequences = options.max_logit_rows;
  const int64_t tables = sequences * (TableTokens(model) / kBlockTokens);
  return 2 * (4 * RoundUp(rows, 16) + 4 * RoundUp(sequences + 1, 16) + tables) * kFloat;
}

int64_t SamplerBytes(const ModelShape& model, const MemoryOptions& options) {
  const int64_t entries = 2 * std::max(kListEntries, model.vocabulary) +
                          2 * std::max(kListEntries, 2 * model.vocabulary);
  const int64_t per_thread = 2 * model.vocabulary * kFloat + kAlignment;
  return (entries + kLogprobRows * (model.vocabulary + 2 * kTopLogprobs)) * kFloat +
         options.max_logit_rows * kRowBytes + 20 * kAlignment + kThreads * per_thread;
}

}  // namespace

double ActivationBytes(const ModelShape& model, const StageSpec& stage, const RankShare& share,
                       const MemoryOptions& options) {
  const int64_t rows = options.max_step_tokens;
  // A row takes a slot at each of its experts.
  const int64_t slots = rows * std::max<int64_t>(1, MaxExpertsPerToken(model));
  int64_t attention = 0;
  for (size_t i = 0; i < model.kinds.size(); ++i) {
    attention = std::max(attention, AttentionWorkspaceBytes(model, model.kinds[i], share.kinds[i],
                                                            rows, options.max_logit_rows));
  }
  const int64_t other =
      LinearWorkspaceBytes(model, share, std::max(slots, options.max_logit_rows)) + attention +
      LogitBytes(model, stage, share, options.max_logit_rows) + MaxExperts(model) * kFloat +
      64 * kAlignment;
  const double floats = static_cast<double>(rows * FloatsPerRow(model, share));
  const double bytes = floats * model.activation_bytes_per_element + static_cast<double>(other);
  if (model.draft_kind < 0 || !stage.holds_head) return bytes;
  // The head for further tokens has all of them once more, and both of its inputs.
  const double fused = static_cast<double>(rows * 2 * model.hidden);
  return 2 * bytes + fused * model.activation_bytes_per_element;
}

double CommunicationBytes(const ModelShape& model, const StageSpec& stage,
                          const MemoryOptions& options, bool pipeline) {
  const double rows_bytes = static_cast<double>(options.max_step_tokens * model.hidden) *
                            model.activation_bytes_per_element;
  const double between_ranks =
      stage.width() > 1 ? 2 * std::max(rows_bytes, static_cast<double>(kSlotBytes)) : 0;
  return between_ranks + (pipeline ? 2 * rows_bytes : 0);
}

double LeftOutBytes(const ModelShape& model, const StageSpec& stage, const RankShare& share,
                    const MemoryOptions& options) {
  const double weights =
      AllocatedWeightBytes(model, stage, share) - StageWeightBytes(model, stage, share);
  const int64_t sampler = stage.holds_head ? SamplerBytes(model, options) : 0;
  const int64_t steps = sampler + StagingBytes(model, options);
  const int64_t runs = model.draft_kind >= 0 && stage.holds_head ? 2 : 1;
  return std::max(0.0, weights) + static_cast<double>(runs * steps);
}

}  // namespace tessera::scheduler
