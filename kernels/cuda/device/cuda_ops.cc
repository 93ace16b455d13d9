#include "kernels/cuda/device/cuda_ops.h"

#include <algorithm>

#include "kernels/cuda/attention/code_attention.h"
#include "kernels/cuda/attention/tensor_attention.h"
#include "kernels/cuda/device/attention_choice.h"
#include "kernels/cuda/device/code_attention_choice.h"
#include "kernels/cuda/device/op_params.h"
#include "kernels/cuda/device/weight_rows.h"
#include "kernels/cuda/kv/kv_kernels.h"
#include "kernels/cuda/launch/linear_shapes.h"
#include "kernels/cuda/plain/attention_kernels.h"
#include "kernels/cuda/plain/delta_net_kernels.h"
#include "kernels/cuda/plain/logits_kernels.h"
#include "kernels/cuda/plain/moe_kernels.h"
#include "kernels/cuda/plain/plain_kernels.h"
#include "kernels/ops_check.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

constexpr bool kNarrows = true;  // f32 inputs may have 16-bit outputs

}  // namespace

CudaStream* CudaOps::OwnStream(Stream& stream, absl::Status& status) const {
  if (stream.owner() == health_) return static_cast<CudaStream*>(&stream);
  status = absl::InvalidArgumentError(
      StrCat("ops of ", health_->device(), ": the stream belongs to another device"));
  return nullptr;
}

template <typename Params>
absl::Status CudaOps::Enqueue(const char* op, cudaError_t (*launch)(const Params&, cudaStream_t),
                              const Params& params, Stream& stream) {
  absl::Status status;
  if (CudaStream* own = OwnStream(stream, status)) own->Enqueue(op, launch, params);
  return status;
}

DType CudaOps::LinearInputs(const LinearSpec& spec, int64_t rows, DType products) const {
  return linear_.Inputs(spec, rows, products);
}

bool CudaOps::ComputesCodes(const LinearSpec& spec) const {
  return spec.group_size % kGemmWindow == 0;
}

absl::Status CudaOps::Embedding(const EmbeddingArgs& args, Stream& stream) {
  if (absl::Status check = CheckEmbedding(args); !check.ok()) return check;
  EmbeddingParams params = {
      .out = args.out.data,
      .table = args.table.data,
      .ids = args.ids.As<int32_t>(),
      .tokens = args.out.rows(),
      .hidden = args.out.shape[1],
      .vocabulary_rows = args.table.rows(),
      .vocabulary_begin = args.vocabulary_begin,
      .out_stride = args.out.row_stride,
      .table_row_bytes = args.table.row_stride * SizeInBytes(args.table.dtype),
      .group_size = 1,
      .table_dtype = args.table.dtype,
      .dtype = args.out.dtype,
      .accumulate = args.accumulate};
  if (args.packed != nullptr) {
    const LinearSpec& spec = args.packed->spec;
    params.table = args.packed->data;
    params.vocabulary_rows = spec.out_features;
    params.table_row_bytes = WeightRowBytes(spec);
    params.scales_offset_bytes = ScalesOffsetBytes(spec);
    params.steps_offset_bytes = StepsOffsetBytes(spec);
    params.group_size = spec.group_size;
    params.blocks = spec.blocks;
    params.table_dtype = KeptType(spec);
    params.e2m1 = spec.e2m1;
  }
  return Enqueue("Embedding", &LaunchEmbedding, params, stream);
}

absl::Status CudaOps::Norm(const char* op, const NormArgs& args, bool subtract_mean,
                           Stream& stream) {
  const NormParams params = {.out = args.out.data,
                             .in = args.in.data,
                             .residual = args.residual.data,
                             .weight = args.weight.As<float>(),
                             .bias = args.bias.As<float>(),
                             .squares = args.squares.As<float>(),
                             .rows = args.in.rows(),
                             .vectors = args.in.rank == 3 ? args.in.shape[1] : 1,
                             .width = args.in.shape[args.in.rank - 1],
                             .whole_width = args.whole_width,
                             .out_stride = args.out.row_stride,
                             .in_stride = args.in.row_stride,
                             .residual_stride = args.residual.row_stride,
                             .squares_stride = args.squares.row_stride,
                             .weight_stride = args.weight.rank == 2 ? args.weight.row_stride : 0,
                             .epsilon = args.epsilon,
                             .subtract_mean = subtract_mean,
                             .dtype = args.in.dtype,
                             .out_dtype = args.out.dtype};
  return Enqueue(op, &LaunchNorm, params, stream);
}

absl::Status CudaOps::RmsNorm(const NormArgs& args, Stream& stream) {
  if (absl::Status check = CheckRmsNorm(args, kNarrows); !check.ok()) return check;
  return Norm("RmsNorm", args, false, stream);
}

absl::Status CudaOps::LayerNorm(const NormArgs& args, Stream& stream) {
  if (absl::Status check = CheckLayerNorm(args, kNarrows); !check.ok()) return check;
  return Norm("LayerNorm", args, true, stream);
}

absl::Status CudaOps::SumSquares(const SumSquaresArgs& args, Stream& stream) {
  if (absl::Status check = CheckSumSquares(args); !check.ok()) return check;
  const SumSquaresParams params = {.out = args.out.As<float>(),
                                   .in = args.in.data,
                                   .rows = args.in.rows(),
                                   .width = args.in.shape[1],
                                   .out_stride = args.out.row_stride,
                                   .in_stride = args.in.row_stride,
                                   .dtype = args.in.dtype};
  return Enqueue("SumSquares", &LaunchSumSquares, params, stream);
}

absl::Status CudaOps::Scale(const ScaleArgs& args, Stream& stream) {
  if (absl::Status check = CheckScale(args); !check.ok()) return check;
  const ScaleParams params = {.rows = args.rows.data,
                              .positions = args.positions.As<int32_t>(),
                              .count = args.rows.rows(),
                              .width = args.rows.shape[1],
                              .stride = args.rows.row_stride,
                              .factor = args.factor,
                              .soft_cap = args.soft_cap,
                              .limit = args.limit,
                              .position_gain = args.position_gain,
                              .position_period = args.position_period,
                              .position_offset = args.position_offset,
                              .dtype = args.rows.dtype};
  return Enqueue("Scale", &LaunchScale, params, stream);
}

absl::Status CudaOps::GatherRows(const GatherRowsArgs& args, Stream& stream) {
  if (absl::Status check = CheckGatherRows(args); !check.ok()) return check;
  const GatherParams params = {.out = args.out.data,
                               .in = args.in.data,
                               .source_rows = args.rows.As<int32_t>(),
                               .rows = args.out.rows(),
                               .width = args.out.shape[1],
                               .in_rows = args.in.rows(),
                               .out_stride = args.out.row_stride,
                               .in_stride = args.in.row_stride,
                               .dtype = args.in.dtype};
  return Enqueue("GatherRows", &LaunchGather, params, stream);
}

absl::Status CudaOps::FeedTokens(const FeedTokensArgs& args, Stream& stream) {
  if (absl::Status check = CheckFeedTokens(args); !check.ok()) return check;
  const FeedTokensParams params = {.ids = args.ids.As<int32_t>(),
                                   .drawn = args.drawn.As<int32_t>(),
                                   .tokens = args.ids.rows(),
                                   .rows = args.drawn.rows(),
                                   .first_fed = kFedToken};
  return Enqueue("FeedTokens", &LaunchFeedTokens, params, stream);
}

absl::Status CudaOps::Add(const AddArgs& args, Stream& stream) {
  if (absl::Status check = CheckAdd(args); !check.ok()) return check;
  const AddParams params = {.out = args.out.data,
                            .in = args.in.data,
                            .rows = args.out.rows(),
                            .width = args.out.shape[1],
                            .out_stride = args.out.row_stride,
                            .in_stride = args.in.row_stride,
                            .dtype = args.in.dtype};
  return Enqueue("Add", &LaunchAdd, params, stream);
}

absl::Status CudaOps::Activate(const ActivationArgs& args, Stream& stream) {
  if (absl::Status check = CheckActivate(args, kNarrows); !check.ok()) return check;
  const ActivationParams params = {.out = args.out.data,
                                   .in = args.in.data,
                                   .rows = args.out.rows(),
                                   .width = args.out.shape[1],
                                   .out_stride = args.out.row_stride,
                                   .in_stride = args.in.row_stride,
                                   .kind = KindOf(args.kind),
                                   .gated = false,
                                   .dtype = args.in.dtype,
                                   .out_dtype = args.out.dtype};
  return Enqueue("Activate", &LaunchActivation, params, stream);
}

absl::Status CudaOps::GatedActivate(const GatedActivationArgs& args, Stream& stream) {
  if (absl::Status check = CheckGatedActivate(args, kNarrows); !check.ok()) return check;
  const ActivationParams params = {.out = args.out.data,
                                   .in = args.gate_up.data,
                                   .rows = args.out.rows(),
                                   .width = args.out.shape[1],
                                   .out_stride = args.out.row_stride,
                                   .in_stride = args.gate_up.row_stride,
                                   .kind = KindOf(args.kind),
                                   .gated = true,
                                   .dtype = args.gate_up.dtype,
                                   .out_dtype = args.out.dtype};
  return Enqueue("GatedActivate", &LaunchActivation, params, stream);
}

absl::Status CudaOps::ClampedGate(const ClampedGateArgs& args, Stream& stream) {
  if (absl::Status check = CheckClampedGate(args, kNarrows); !check.ok()) return check;
  const ClampedGateParams params = {.out = args.out.data,
                                    .in = args.gate_up.data,
                                    .rows = args.out.rows(),
                                    .width = args.out.shape[1],
                                    .out_stride = args.out.row_stride,
                                    .in_stride = args.gate_up.row_stride,
                                    .limit = args.limit,
                                    .alpha = args.alpha,
                                    .dtype = args.gate_up.dtype,
                                    .out_dtype = args.out.dtype};
  return Enqueue("ClampedGate", &LaunchClampedGate, params, stream);
}

int64_t CudaOps::PackedWeightBytes(const LinearSpec& spec) const {
  return spec.out_features * WeightRowBytes(spec);
}

absl::Status CudaOps::PackWeightRows(const PackedWeights& weights, int64_t first_row,
                                     const TensorView& source) {
  absl::Status check = CheckPackWeightRows(weights, first_row, source);
  if (!check.ok()) return check;
  const int64_t row_bytes = WeightRowBytes(weights.spec);
  return rings_.Upload(weights.data + first_row * row_bytes, source.rows(), row_bytes,
                       [&](int64_t first, int64_t count, std::byte* rows) {
                         TensorView part = source.Rows(count);
                         part.data += first * source.row_stride * SizeInBytes(source.dtype);
                         return PackRows(weights.spec, first_row + first, part, rows);
                       });
}

absl::Status CudaOps::UnpackWeightRows(const PackedWeights& weights, int64_t first_row,
                                       const TensorView& out_f32) {
  absl::Status check = CheckUnpackWeightRows(weights, first_row, out_f32);
  if (!check.ok()) return check;
  const int64_t row_bytes = WeightRowBytes(weights.spec);
  std::vector<std::byte> packed(out_f32.rows() * row_bytes);
  check = health_->Check(cudaMemcpy(packed.data(), weights.data + first_row * row_bytes,
                                    packed.size(), cudaMemcpyDeviceToHost),
                         "UnpackWeightRows");
  if (check.ok()) UnpackRows(weights.spec, packed.data(), out_f32);
  return check;
}

absl::Status CudaOps::Linear(const LinearArgs& args, Stream& stream) {
  absl::Status status;
  CudaStream* own = OwnStream(stream, status);
  return own == nullptr ? status : linear_.Enqueue(args, *own);
}

absl::Status CudaOps::GroupedLinear(const GroupedLinearArgs& args, Stream& stream) {
  absl::Status status;
  CudaStream* own = OwnStream(stream, status);
  return own == nullptr ? status : linear_.Enqueue(args, *own);
}

absl::Status CudaOps::HeadLinear(const HeadLinearArgs& args, Stream& stream) {
  if (!linear_.TakesHeads(args)) return Ops::HeadLinear(args, stream);
  absl::Status status;
  CudaStream* own = OwnStream(stream, status);
  return own == nullptr ? status : linear_.Enqueue(args, *own);
}

absl::Status CudaOps::RopeTable(const RopeTableArgs& args, Stream& stream) {
  if (absl::Status check = CheckRopeTable(args); !check.ok()) return check;
  const RopeTableParams params = {.cos_sin = args.cos_sin.As<float>(),
                                  .positions = args.positions.As<int32_t>(),
                                  .inverse_frequencies = args.inverse_frequencies.As<float>(),
                                  .lengths = args.lengths.As<int32_t>(),
                                  .tokens = args.cos_sin.rows(),
                                  .half = args.cos_sin.shape[1] / 2,
                                  .cos_sin_stride = args.cos_sin.row_stride,
                                  .original_max_position = args.original_max_position,
                                  .attention_factor = args.attention_factor,
                                  .dynamic_factor = args.dynamic_factor,
                                  .theta = args.theta};
  return Enqueue("RopeTable", &LaunchRopeTable, params, stream);
}

absl::Status CudaOps::Rope(const RopeArgs& args, Stream& stream) {
  if (absl::Status check = CheckRope(args); !check.ok()) return check;
  const RopeParams params = {.q = args.q.data,
                             .k = args.k.data,
                             .cos_sin = args.cos_sin.As<float>(),
                             .tokens = args.q.rows(),
                             .heads = args.q.shape[1],
                             .kv_heads = args.k.shape[1],
                             .head_dim = args.q.shape[2],
                             .rotary_dim = args.cos_sin.shape[1],
                             .q_stride = args.q.row_stride,
                             .k_stride = args.k.row_stride,
                             .cos_sin_stride = args.cos_sin.row_stride,
                             .dtype = args.q.dtype};
  return Enqueue("Rope", &LaunchRope, params, stream);
}

absl::Status CudaOps::KvWrite(const KvWriteArgs& args, Stream& stream) {
  if (absl::Status check = CheckKvWrite(args); !check.ok()) return check;
  const KvWriteParams params = {.keys = args.cache.keys.data,
                                .values = args.cache.values.data,
                                .k = args.k.data,
                                .v = args.v.data,
                                .slots = args.slots.As<int32_t>(),
                                .tokens = args.k.rows(),
                                .kv_heads = args.k.shape[1],
                                .head_dim = args.k.shape[2],
                                .keys_stride = args.cache.keys.row_stride,
                                .values_stride = args.cache.values.row_stride,
                                .k_stride = args.k.row_stride,
                                .v_stride = args.v.row_stride,
                                .cache_dtype = args.cache.keys.dtype,
                                .dtype = args.k.dtype};
  return Enqueue("KvWrite", &LaunchKvWrite, params, stream);
}

absl::Status CudaOps::EncodeKv(const KvWireArgs& args, Stream& stream) {
  if (absl::Status check = CheckKvCode("EncodeKv", args, false); !check.ok()) return check;
  return Enqueue("EncodeKv", &LaunchEncodeKv, ParamsOf(args), stream);
}

absl::Status CudaOps::DecodeKv(const KvWireArgs& args, Stream& stream) {
  if (absl::Status check = CheckKvCode("DecodeKv", args, true); !check.ok()) return check;
  return Enqueue("DecodeKv", &LaunchDecodeKv, ParamsOf(args), stream);
}

absl::Status CudaOps::PrepareAttention(const PrepareAttentionArgs& args, Stream& stream) {
  const int64_t head_dim = args.q.shape[2];
  if (head_dim > kMaxPreparedHead) return Ops::PrepareAttention(args, stream);
  if (absl::Status check = CheckPrepareAttention(args); !check.ok()) return check;
  const PrepareAttentionParams params = {.q = args.q.data,
                                         .k = args.k.data,
                                         .v = args.v.data,
                                         .q_norm = args.q_norm.As<float>(),
                                         .k_norm = args.k_norm.As<float>(),
                                         .cos_sin = args.cos_sin.As<float>(),
                                         .keys = args.cache.keys.data,
                                         .values = args.cache.values.data,
                                         .slots = args.slots.As<int32_t>(),
                                         .tokens = args.q.rows(),
                                         .heads = args.q.shape[1],
                                         .kv_heads = args.k.shape[1],
                                         .head_dim = head_dim,
                                         .rotary_dim = args.cos_sin.shape[1],
                                         .q_stride = args.q.row_stride,
                                         .k_stride = args.k.row_stride,
                                         .v_stride = args.v.row_stride,
                                         .cos_sin_stride = args.cos_sin.row_stride,
                                         .keys_stride = args.cache.keys.row_stride,
                                         .values_stride = args.cache.values.row_stride,
                                         .epsilon = args.epsilon,
                                         .cache_dtype = args.cache.keys.dtype,
                                         .dtype = args.q.dtype};
  return Enqueue("PrepareAttention", &LaunchPrepareAttention, params, stream);
}

int64_t CudaOps::AttentionWorkspaceBytes(const AttentionShape& shape) const {
  return std::max(TensorAttentionWorkspaceBytes(shape), CodeAttentionWorkspaceBytes(shape));
}

absl::Status CudaOps::AttendCodes(const AttentionArgs& args, const AttentionParams& params,
                                  Stream& stream) {
  const AttentionShape shape = ShapeOf(args);
  AttentionArgs checked = args;
  checked.out.dtype = args.q.dtype;  // types were checked before
  absl::Status check = CheckAttention(checked, CodeAttentionWorkspaceBytes(shape));
  if (!check.ok()) return check;
  const CodeAttentionParams codes = {.attention = params,
                                     .out_dtype = args.out.dtype,
                                     .products = args.products,
                                     .max_context = shape.max_context_tokens,
                                     .one_row = args.rows_per_sequence == RowsPerSequence::kOne,
                                     .partials = args.workspace.As<float>(),
                                     .capability = capability_};
  return Enqueue("Attention", &LaunchCodeAttention, codes, stream);
}

absl::Status CudaOps::Attention(const AttentionArgs& args, Stream& stream) {
  const AttentionShape shape = ShapeOf(args);
  const bool tensor = ChooseAttention(args, capability_) == AttentionChoice::kTensorCores;
  const int64_t workspace_bytes = tensor ? AttentionWorkspaceBytes(shape) : 0;
  AttentionArgs checked = args;
  // What linears read; the check knows outputs of the queries' type alone.
  const bool narrowed = args.q.dtype == DType::kF32 && args.out.dtype == args.products;
  if (narrowed) checked.out.dtype = DType::kF32;
  if (absl::Status check = CheckAttention(checked, workspace_bytes); !check.ok()) return check;
  const AttentionParams params = ParamsOf(args);
  if (!tensor) {
    if (TakesCodeAttention(args, capability_)) return AttendCodes(args, params, stream);
    slow_.Note("Attention", args, capability_);
    return Enqueue("Attention", &LaunchAttention, params, stream);
  }
  const RowsPerSequence each = args.rows_per_sequence;
  const bool one_row = each == RowsPerSequence::kOne || each == RowsPerSequence::kOneOrMany;
  const TensorAttentionParams tiled = {.attention = params,
                                       .max_context = shape.max_context_tokens,
                                       .one_row = one_row,
                                       .partials = args.workspace.As<float>(),
                                       .capability = capability_};
  if (IsWideHead(params.head_dim)) return Enqueue("Attention", &LaunchWideAttention, tiled, stream);
  absl::Status status;
  if (each != RowsPerSequence::kOne)
    status = Enqueue("Attention", &LaunchPrefillAttention, tiled, stream);
  if (status.ok() && each != RowsPerSequence::kMany)
    status = Enqueue("Attention", &LaunchDecodeAttention, tiled, stream);
  return status;
}

absl::Status CudaOps::CausalConv(const CausalConvArgs& args, Stream& stream) {
  if (absl::Status check = CheckCausalConv(args); !check.ok()) return check;
  const CausalConvParams params = {.rows = args.rows.As<float>(),
                                   .weights = args.weights.As<float>(),
                                   .states = args.states.As<float>(),
                                   .at = ParamsOf(args.at),
                                   .channels = args.rows.shape[1],
                                   .taps = args.weights.shape[1],
                                   .rows_stride = args.rows.row_stride};
  return Enqueue("CausalConv", &LaunchCausalConv, params, stream);
}

absl::Status CudaOps::GatedDelta(const GatedDeltaArgs& args, Stream& stream) {
  if (absl::Status check = CheckGatedDelta(args); !check.ok()) return check;
  const GatedDeltaParams params = {.values = args.values.As<float>(),
                                   .queries = args.queries.As<float>(),
                                   .keys = args.keys.As<float>(),
                                   .gates = args.gates.As<float>(),
                                   .decay_log = args.decay_log.As<float>(),
                                   .decay_bias = args.decay_bias.As<float>(),
                                   .states = args.states.As<float>(),
                                   .at = ParamsOf(args.at),
                                   .value_heads = args.values.shape[1],
                                   .key_heads = args.keys.shape[1],
                                   .key_dim = args.keys.shape[2],
                                   .value_dim = args.values.shape[2],
                                   .values_stride = args.values.row_stride,
                                   .queries_stride = args.queries.row_stride,
                                   .keys_stride = args.keys.row_stride,
                                   .gates_stride = args.gates.row_stride};
  return Enqueue("GatedDelta", &LaunchGatedDelta, params, stream);
}

absl::Status CudaOps::ExpertBias(const ExpertBiasArgs& args, Stream& stream) {
  if (absl::Status check = CheckExpertBias(args); !check.ok()) return check;
  const ExpertBiasParams params = {.out = args.out.data,
                                   .biases = args.biases.As<float>(),
                                   .expert_offsets = args.expert_offsets.As<int32_t>(),
                                   .slots = args.out.rows(),
                                   .width = args.out.shape[1],
                                   .experts = args.biases.rows(),
                                   .out_stride = args.out.row_stride,
                                   .biases_stride = args.biases.row_stride,
                                   .dtype = args.out.dtype};
  return Enqueue("ExpertBias", &LaunchExpertBias, params, stream);
}

absl::Status CudaOps::MoeScores(const MoeScoresArgs& args, Stream& stream) {
  if (absl::Status check = CheckMoeScores(args); !check.ok()) return check;
  const MoeScoresParams params = {.scores = args.scores.As<float>(),
                                  .rows = args.scores.rows(),
                                  .experts = args.scores.shape[1],
                                  .stride = args.scores.row_stride,
                                  .softmax = args.kind == RouterScores::kSoftmax,
                                  .sparse_mixer = args.kind == RouterScores::kSparseMixer,
                                  .jitter = args.jitter};
  return Enqueue("MoeScores", &LaunchMoeScores, params, stream);
}

absl::Status CudaOps::MoeRoute(const MoeRouteArgs& args, Stream& stream) {
  if (absl::Status check = CheckMoeRoute(args); !check.ok()) return check;
  const MoeRouteParams params = {.logits = args.logits.As<float>(),
                                 .weights = args.weights.As<float>(),
                                 .slots = args.slots.As<int32_t>(),
                                 .source_rows = args.source_rows.As<int32_t>(),
                                 .expert_offsets = args.expert_offsets.As<int32_t>(),
                                 .rows = args.weights.rows(),
                                 .experts = args.logits.shape[1],
                                 .k = args.weights.shape[1],
                                 .logits_stride = args.logits.row_stride,
                                 .weights_stride = args.weights.row_stride,
                                 .renormalise = args.renormalise,
                                 .scored = args.scored,
                                 .choice_bias = args.choice_bias.As<float>(),
                                 .groups = args.groups,
                                 .groups_per_row = args.groups_per_row,
                                 .groups_by_best = args.groups_by_best,
                                 .factor = args.factor,
                                 .expert_scales = args.expert_scales.As<float>()};
  return Enqueue("MoeRoute", &LaunchMoeRoute, params, stream);
}

absl::Status CudaOps::MoeCombine(const MoeCombineArgs& args, Stream& stream) {
  if (absl::Status check = CheckMoeCombine(args); !check.ok()) return check;
  const MoeCombineParams params = {.out = args.out.data,
                                   .in = args.in.data,
                                   .weights = args.weights.As<float>(),
                                   .slots = args.slots.As<int32_t>(),
                                   .held = args.held.As<int32_t>(),
                                   .shared = args.shared.data,
                                   .shared_gate = args.shared_gate.As<float>(),
                                   .rows = args.out.rows(),
                                   .width = args.out.shape[1],
                                   .k = args.weights.shape[1],
                                   .held_count = args.held.rows(),
                                   .out_stride = args.out.row_stride,
                                   .in_stride = args.in.row_stride,
                                   .weights_stride = args.weights.row_stride,
                                   .slots_stride = args.slots.row_stride,
                                   .shared_stride = args.shared.row_stride,
                                   .dtype = args.in.dtype};
  return Enqueue("MoeCombine", &LaunchMoeCombine, params, stream);
}

absl::Status CudaOps::LogSoftmax(const LogSoftmaxArgs& args, Stream& stream) {
  if (absl::Status check = CheckLogSoftmax(args); !check.ok()) return check;
  const LogSoftmaxParams params = {.out = args.out.As<float>(),
                                   .in = args.in.As<float>(),
                                   .rows = args.in.rows(),
                                   .width = args.in.shape[1],
                                   .out_stride = args.out.row_stride,
                                   .in_stride = args.in.row_stride};
  return Enqueue("LogSoftmax", &LaunchLogSoftmax, params, stream);
}

absl::Status CudaOps::TopK(const TopKArgs& args, Stream& stream) {
  if (absl::Status check = CheckTopK(args); !check.ok()) return check;
  const TopKParams params = {.values = args.values.As<float>(),
                             .indices = args.indices.As<int32_t>(),
                             .in = args.in.As<float>(),
                             .rows = args.in.rows(),
                             .width = args.in.shape[1],
                             .k = args.values.shape[1],
                             .values_stride = args.values.row_stride,
                             .indices_stride = args.indices.row_stride,
                             .in_stride = args.in.row_stride};
  return Enqueue("TopK", &LaunchTopK, params, stream);
}

absl::Status CudaOps::Sample(const SampleArgs& args, Stream& stream) {
  if (absl::Status check = CheckSample(args, 0); !check.ok()) return check;
  const bool masked = !args.masks.empty();
  const SampleParams params = {.token_ids = args.token_ids.As<int32_t>(),
                               .logits = args.logits.As<float>(),
                               .temperature = args.temperature.As<float>(),
                               .top_p = args.top_p.As<float>(),
                               .min_p = args.min_p.As<float>(),
                               .top_k = args.top_k.As<int32_t>(),
                               .repetition = args.repetition_penalty.As<float>(),
                               .presence = args.presence_penalty.As<float>(),
                               .frequency = args.frequency_penalty.As<float>(),
                               .seeds = args.seeds.As<uint64_t>(),
                               .choices = args.choices.As<int32_t>(),
                               .positions = args.positions.As<int32_t>(),
                               .history_offsets = args.history_offsets.As<int32_t>(),
                               .history_ids = args.history_ids.As<int32_t>(),
                               .history_counts = args.history_counts.As<int32_t>(),
                               .bias_offsets = args.bias_offsets.As<int32_t>(),
                               .bias_ids = args.bias_ids.As<int32_t>(),
                               .bias_values = args.bias_values.As<float>(),
                               .masks = masked ? args.masks.As<int32_t>() : nullptr,
                               .mask_rows = masked ? args.mask_rows.As<int32_t>() : nullptr,
                               .mask_count = masked ? args.masks.rows() : 0,
                               .mask_stride = masked ? args.masks.row_stride : 0,
                               .rows = args.logits.rows(),
                               .vocabulary = args.logits.shape[1],
                               .stride = args.logits.row_stride};
  return Enqueue("Sample", &LaunchSample, params, stream);
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
