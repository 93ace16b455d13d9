#include "worker/model/model_buffers.h"

#include <algorithm>
#include <utility>

#include "kernels/collectives/group.h"
#include "kernels/collectives/group_arguments.h"
#include "kernels/collectives/staged_group.h"
#include "proto/layers/layer_sizes.h"
#include "proto/layers/layers.h"
#include "third_party/absl/str_cat.h"
#include "worker/model/model_rope.h"
#include "worker/weights/arena.h"

namespace tessera::worker {
namespace {

using kernels::DType;
using kernels::PackedWeights;
using kernels::TensorView;

// Largest workspace that any linear of the model asks for.
class LinearWorkspace {
 public:
  explicit LinearWorkspace(const kernels::Ops& ops) : ops_(ops) {}

  void Add(const PackedWeights& weights, int64_t rows) {
    if (weights.data == nullptr) return;
    bytes_ = std::max(bytes_, ops_.LinearWorkspaceBytes(weights.spec, rows, DType::kF32));
  }
  void AddGrouped(const std::vector<PackedWeights>& experts, int64_t slots) {
    if (experts.empty()) return;
    const auto count = static_cast<int64_t>(experts.size());
    bytes_ = std::max(bytes_,
                      ops_.GroupedLinearWorkspaceBytes(experts[0].spec, slots, count, DType::kF32));
  }
  int64_t bytes() const { return bytes_; }

 private:
  const kernels::Ops& ops_;
  int64_t bytes_ = 0;
};

int64_t WorkspaceBytes(const ModelOptions& options, const ModelWeights& weights,
                       const kernels::Ops& ops) {
  const int64_t tokens = options.limits.max_tokens;
  const int64_t logit_rows = options.limits.max_logit_rows;
  const int64_t slots = tokens * MaxExpertsPerToken(options.model);
  LinearWorkspace workspace(ops);
  workspace.Add(weights.project_in.matrix, tokens);
  workspace.Add(weights.per_layer_context.matrix, tokens);
  for (const LayerWeights& layer : weights.layers) {
    workspace.Add(layer.attention.qkv.matrix, tokens);
    workspace.Add(layer.attention.output.matrix, tokens);
    workspace.Add(layer.attention.latent_in.matrix, tokens);
    workspace.Add(layer.attention.query.matrix, tokens);
    if (!layer.attention.head_queries.empty()) {
      workspace.Add(layer.attention.head_queries[0], tokens);
      workspace.Add(layer.attention.head_values[0], tokens);
    }
    workspace.Add(layer.per_layer.gate.matrix, tokens);
    workspace.Add(layer.per_layer.output.matrix, tokens);
    workspace.Add(layer.delta.in.matrix, tokens);
    workspace.Add(layer.delta.gates.matrix, tokens);
    workspace.Add(layer.delta.output.matrix, tokens);
    workspace.Add(layer.ffn.up.matrix, tokens);
    workspace.Add(layer.ffn.down.matrix, tokens);
    workspace.Add(layer.ffn.router, tokens);
    workspace.Add(layer.ffn.shared_gate, tokens);
    workspace.AddGrouped(layer.ffn.expert_up, slots);
    workspace.AddGrouped(layer.ffn.expert_down, slots);
  }
  workspace.Add(weights.draft_fuse.matrix, tokens);
  workspace.Add(weights.project_out.matrix, logit_rows);
  workspace.Add(weights.head.matrix, logit_rows);
  return workspace.bytes();
}

// Elements of `wide` and `inner`, shared by attention and ffn of all layers.
struct SharedSizes {
  int64_t wide = 0;
  int64_t inner = 0;
};

SharedSizes SizesOf(const ModelOptions& options, const ModelWeights& weights) {
  const int64_t tokens = options.limits.max_tokens;
  const int64_t slots = tokens * MaxExpertsPerToken(options.model);
  SharedSizes sizes;
  const auto add = [&sizes](int64_t rows, const PackedWeights& first, const PackedWeights& second) {
    sizes.wide = std::max(sizes.wide, rows * first.spec.out_features);
    sizes.inner = std::max(sizes.inner, rows * second.spec.in_features);
  };
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const LayerWeights& layer = weights.layers[i];
    const v1::LayerKind& kind =
        KindOf(options.model, options.share.layers().begin() + static_cast<int64_t>(i));
    if (kind.attention().output_gate()) {  // what the heads read stands beside their gates
      sizes.wide = std::max(sizes.wide, tokens * (layer.attention.qkv.matrix.spec.out_features +
                                                  layer.attention.output.matrix.spec.in_features));
    }
    add(tokens, layer.attention.qkv.matrix, layer.attention.output.matrix);
    const auto heads = static_cast<int64_t>(layer.attention.head_queries.size());
    if (heads > 0) {  // queries of the latent, then what they read or what they are made from
      const int64_t read = heads * kind.attention().head_dim();
      const int64_t before = layer.attention.latent_in.matrix.spec.out_features +
                             layer.attention.query.matrix.spec.out_features;
      sizes.wide = std::max(sizes.wide, tokens * (read + std::max(read, before)));
    }
    add(tokens, layer.delta.in.matrix, layer.delta.output.matrix);
    sizes.inner = std::max(sizes.inner, tokens * layer.delta.gates.matrix.spec.out_features);
    if (layer.ffn.has_experts()) {
      add(slots, layer.ffn.expert_up[0], layer.ffn.expert_down[0]);
    }
    add(tokens, layer.ffn.up.matrix, layer.ffn.down.matrix);
  }
  // Rows of its table, then a layer's gate and what is gated.
  const int64_t per_layer = PerLayerColumns(options.model), width = options.model.per_layer_width();
  sizes.wide = std::max(sizes.wide, tokens * std::max(per_layer, 2 * width));
  sizes.inner = std::max(sizes.inner, tokens * width);
  return sizes;
}

// For `count` experts of which a token uses `k`, the most of any layer.
void ReserveExperts(int64_t count, int64_t k, int64_t tokens, int64_t hidden, ModelBuffers* buffers,
                    Arena* arena) {
  buffers->shared_gate = TensorView(nullptr, DType::kF32, {tokens, 1});
  buffers->router_logits = TensorView(nullptr, DType::kF32, {tokens, count});
  buffers->expert_weights = TensorView(nullptr, DType::kF32, {tokens, k});
  buffers->expert_slots = TensorView(nullptr, DType::kI32, {tokens, k});
  buffers->source_rows = TensorView(nullptr, DType::kI32, {tokens * k});
  buffers->expert_offsets = TensorView(nullptr, DType::kI32, {count + 1});
  buffers->expert_out = TensorView(nullptr, DType::kF32, {tokens * k, hidden});
  for (TensorView* view : {&buffers->shared_gate, &buffers->router_logits, &buffers->expert_weights,
                           &buffers->expert_slots, &buffers->source_rows, &buffers->expert_offsets,
                           &buffers->expert_out}) {
    arena->Reserve(view);
  }
}

// What few families need.
void ReserveFurther(const ModelOptions& options, ModelBuffers* buffers, Arena* arena) {
  const v1::Model& model = options.model;
  const int64_t tokens = options.limits.max_tokens;
  int64_t ones = 0, numbers = 0;
  bool apart = false, scales = false;
  for (int i = 0; i < model.kinds_size(); ++i) {
    const v1::LayerKind& kind = model.kinds(i);
    const v1::Attention& attention = kind.attention();
    if (attention.has_latent()) {
      numbers = std::max(numbers, tokens * PartOf(options.share.kinds(i)).query_heads);
    }
    if (attention.value_norm() || attention.qk_norm_without_weights()) {
      ones = std::max<int64_t>(ones, attention.head_dim());
    }
    apart = apart || kind.ffn().normed_apart();
    scales = scales || kind.ffn().experts().scales_input();
  }
  const auto reserve = [arena](TensorView* view, DType dtype,
                               std::initializer_list<int64_t> shape) {
    *view = TensorView(nullptr, dtype, shape);
    arena->Reserve(view);
  };
  if (scales) ones = std::max(ones, tokens);
  if (model.per_layer_width() > 0) {
    reserve(&buffers->per_layer, DType::kF32, {tokens, PerLayerColumns(model)});
    scales = true;
  }
  if (scales) numbers = std::max(numbers, tokens);
  if (apart) reserve(&buffers->apart, DType::kF32, {tokens, model.hidden()});
  if (ones > 0) reserve(&buffers->ones, DType::kF32, {ones});
  if (numbers > 0) reserve(&buffers->own_numbers, DType::kI32, {numbers});
}

// Logits of all ids on rank 0, which holds the first ones; of its own ids on every rank.
void ReserveLogits(const ModelOptions& options, int64_t own, ModelBuffers* buffers, Arena* arena) {
  const int64_t rows = options.limits.max_logit_rows, all = options.model.vocabulary();
  const bool first = options.share.vocabulary_rows().begin() == 0;
  if (first) {
    buffers->logits = TensorView(nullptr, DType::kF32, {rows, all});
    arena->Reserve(&buffers->logits);
  }
  buffers->rank_sizes = TensorView(nullptr, DType::kI32, {1 + kernels::kMaxGroupSize});
  arena->Reserve(&buffers->rank_sizes);
  if (own == all) return;
  buffers->logit_part = TensorView(nullptr, DType::kF32, {rows, own});
  arena->Reserve(&buffers->logit_part);
  if (!first) return;
  buffers->logit_parts = TensorView(nullptr, DType::kF32, {rows * all});
  buffers->row_numbers = TensorView(nullptr, DType::kI32, {rows});
  arena->Reserve(&buffers->logit_parts);
  arena->Reserve(&buffers->row_numbers);
}

}  // namespace

absl::StatusOr<ModelBuffers> AllocateBuffers(const ModelOptions& options,
                                             const ModelWeights& weights, kernels::Device& device) {
  const v1::Model& model = options.model;
  const int64_t tokens = options.limits.max_tokens, logit_rows = options.limits.max_logit_rows;
  const int64_t hidden = model.hidden();
  const SharedSizes sizes = SizesOf(options, weights);
  ModelBuffers buffers;
  Arena arena;
  const auto reserve = [&arena](TensorView* view, std::initializer_list<int64_t> shape) {
    *view = TensorView(nullptr, DType::kF32, shape);
    arena.Reserve(view);
  };
  reserve(&buffers.hidden, {tokens, hidden});
  reserve(&buffers.normed, {tokens, hidden});
  reserve(&buffers.block_out, {tokens, hidden});
  reserve(&buffers.wide, {sizes.wide});
  reserve(&buffers.inner, {sizes.inner});
  const Ropes ropes = RopesOf(model);
  buffers.ropes.resize(ropes.ropes.size());
  for (size_t i = 0; i < buffers.ropes.size(); ++i) {
    const int64_t rotary = ropes.ropes[i].rotary_dim();
    reserve(&buffers.ropes[i].cos_sin, {tokens, rotary});
    reserve(&buffers.ropes[i].frequencies, {rotary / 2});
  }
  if (HasExperts(model)) {
    ReserveExperts(MaxExperts(model), MaxExpertsPerToken(model), tokens, hidden, &buffers, &arena);
  }
  ReserveFurther(options, &buffers, &arena);
  if (model.embedding_width() != hidden) {
    reserve(&buffers.narrow, {tokens, model.embedding_width()});
    reserve(&buffers.logit_narrow, {logit_rows, model.embedding_width()});
  }
  if (options.share.holds_head()) {
    reserve(&buffers.logit_hidden, {logit_rows, hidden});
    ReserveLogits(options, weights.head.matrix.spec.out_features, &buffers, &arena);
  }
  buffers.workspace =
      TensorView(nullptr, DType::kI8, {WorkspaceBytes(options, weights, device.ops())});
  arena.Reserve(&buffers.workspace);

  absl::StatusOr<kernels::Buffer> memory = arena.Allocate(device);
  if (!memory.ok()) {
    return absl::Status(memory.status().code(),
                        StrCat("activations of ", tokens, " tokens and ", logit_rows,
                               " logit rows: ", std::string(memory.status().message()),
                               "; lower the coordinator's --max-num-batched-tokens or "
                               "--max-num-seqs"));
  }
  buffers.memory = *std::move(memory);
  buffers.bytes = arena.bytes();
  return buffers;
}

int64_t GroupStagingBytes(const ModelBuffers& buffers) {
  const auto call = [](const TensorView& in, const TensorView& out) {
    return kernels::StagedGroup::StagingBytes(kernels::DenseBytes(in), kernels::DenseBytes(out));
  };
  return std::max({call({}, buffers.hidden), call({}, buffers.narrow), call({}, buffers.apart),
                   call({}, buffers.per_layer), call({}, buffers.router_logits),
                   call(buffers.logit_part, buffers.logit_parts),
                   call(buffers.rank_sizes.Rows(1), buffers.rank_sizes)});
}

}  // namespace tessera::worker
