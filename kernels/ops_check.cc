#include "kernels/ops_check.h"

#include <algorithm>

#include "kernels/argument_check.h"
#include "kernels/byte_rows.h"
#include "kernels/int4_rows.h"
#include "kernels/kv_rows.h"

namespace tessera::kernels {
namespace {

using enum DType;
constexpr auto kMayBeStrided = ArgumentCheck::Stride::kMayBeStrided;
constexpr std::initializer_list<DType> kActivations = {kF32, kF16, kBF16};
constexpr std::initializer_list<DType> kCaches = {kF32, kF16, kBF16, kI8, kF8};

bool IsActivation(DType dtype) {
  return std::find(kActivations.begin(), kActivations.end(), dtype) != kActivations.end();
}

// Row ops take [rows, width], or [tokens, heads, width] of which only tokens may be strided.
ArgumentCheck& RowTensor(ArgumentCheck& check, const char* name, const TensorView& view,
                         const TensorView& like, std::initializer_list<DType> types) {
  if (like.rank == 3) {
    return check.Tensor(name, view, types, {like.shape[0], like.shape[1], like.shape[2]},
                        kMayBeStrided);
  }
  return check.Tensor(name, view, types, {like.shape[0], like.shape[1]}, kMayBeStrided);
}

// What an output must be.
DType TypeOfOutput(const TensorView& out, DType in, bool narrows) {
  return narrows && in == kF32 && IsActivation(out.dtype) ? out.dtype : in;
}

DType TypeOfInput(const TensorView& in, DType out, bool narrows) {
  return narrows && in.dtype == kF32 ? kF32 : out;
}

ArgumentCheck CheckNorm(const char* op, const NormArgs& args, bool narrows) {
  ArgumentCheck check(op);
  RowTensor(check, "in", args.in, args.in, kActivations);
  RowTensor(check, "out", args.out, args.in, {TypeOfOutput(args.out, args.in.dtype, narrows)});
  check.That(args.out.dtype == args.in.dtype || args.out.data != args.in.data, "out",
             "not alias in of another type");
  if (!args.residual.empty()) {
    RowTensor(check, "residual", args.residual, args.in, {args.in.dtype});
  }
  if (!check.ok()) return check;
  const int64_t width = args.in.shape[args.in.rank - 1];
  check.That(width > 0, "in", "have a width above 0");
  if (args.weight.rank == 2 && args.in.rank == 3) {
    check.Tensor("weight", args.weight, {kF32}, {args.in.shape[1], width});
  } else {
    check.Tensor("weight", args.weight, {kF32}, {width});
  }
  return check;
}

bool IsWeightType(DType type) {
  return type == kF32 || type == kF16 || type == kBF16 || type == kF8 || type == kI8 || type == kI4;
}

ArgumentCheck CheckSpec(const char* op, const LinearSpec& spec) {
  ArgumentCheck check(op);
  check.That(spec.in_features > 0 && spec.out_features > 0, "weights",
             "have in_features and out_features above 0");
  check.That(IsWeightType(spec.weight_dtype), "weights",
             "be float32, float16, bfloat16, float8, int8 or int4");
  const bool groups =
      spec.weight_dtype == kF8 || spec.weight_dtype == kI8 || spec.weight_dtype == kI4;
  check.That(!groups || (spec.group_size > 0 && spec.group_size <= 128), "weights",
             "have a group_size of 1 to 128");
  check.That(!spec.e2m1 || spec.weight_dtype == kI8, "weights", "be int8 where codes are e2m1's");
  const OffsetBlocks& blocks = spec.blocks;
  const bool fits = spec.weight_dtype == kI4 && blocks.size > 0 && blocks.skipped >= 0 &&
                    blocks.skipped < blocks.size && blocks.size % spec.group_size == 0 &&
                    blocks.skipped % spec.group_size == 0;
  if (groups)
    check.That(blocks == OffsetBlocks{} || fits, "weights", "have blocks of whole groups");
  return check;
}

// All but the type and width of the rows.
ArgumentCheck CheckWeightRows(const char* op, const PackedWeights& weights, int64_t first_row,
                              const TensorView& rows) {
  ArgumentCheck check = CheckSpec(op, weights.spec);
  check.That(weights.data != nullptr, "weights", "have memory of PackedWeightBytes");
  check.That(first_row >= 0 && first_row + rows.rows() <= weights.spec.out_features, "rows",
             "lie within out_features");
  return check;
}

ArgumentCheck& CheckSeats(const SeatArgs& args, ArgumentCheck& check) {
  const int64_t sequences = args.seats.shape[0];
  return check.Tensor("seats", args.seats, {kI32}, {kAnySize})
      .Tensor("query_starts", args.query_starts, {kI32}, {sequences + 1})
      .Tensor("context_lengths", args.context_lengths, {kI32}, {sequences})
      .Optional("draft_rows", args.draft_rows, {kI32}, {sequences});
}

}  // namespace

absl::Status CheckEmbedding(const EmbeddingArgs& args) {
  if (args.packed != nullptr) {
    return ArgumentCheck("Embedding")
        .Tensor("out", args.out, {kF32}, {kAnySize, args.packed->spec.in_features}, kMayBeStrided)
        .Tensor("ids", args.ids, {kI32}, {args.out.shape[0]})
        .That(args.table.empty(), "table", "be empty beside packed weights")
        .That(args.packed->data != nullptr, "packed", "have memory")
        .That(!args.accumulate, "accumulate", "be off with packed weights")
        .status();
  }
  return ArgumentCheck("Embedding")
      .Tensor("out", args.out, kActivations, {kAnySize, kAnySize}, kMayBeStrided)
      .Tensor("table", args.table, {kF32, kF16, kBF16}, {kAnySize, args.out.shape[1]},
              kMayBeStrided)
      .Tensor("ids", args.ids, {kI32}, {args.out.shape[0]})
      .That(args.out.data != args.table.data || args.out.empty(), "out", "not alias table")
      .status();
}

absl::Status CheckRmsNorm(const NormArgs& args, bool narrows) {
  return CheckNorm("RmsNorm", args, narrows)
      .That(args.bias.empty(), "bias", "be empty: RmsNorm has none")
      .Optional("squares", args.squares, {kF32}, {args.in.shape[0], 1}, kMayBeStrided)
      .That(args.squares.empty() || (args.in.rank == 2 && args.residual.empty()), "squares",
            "be given for rows alone, without a residual")
      .That(args.squares.empty() || args.whole_width > 0, "whole_width",
            "be above 0 beside squares")
      .status();
}

absl::Status CheckLayerNorm(const NormArgs& args, bool narrows) {
  return CheckNorm("LayerNorm", args, narrows)
      .Optional("bias", args.bias, {kF32}, {args.in.shape[args.in.rank - 1]})
      .That(args.squares.empty(), "squares", "be empty: LayerNorm takes whole rows")
      .status();
}

absl::Status CheckSumSquares(const SumSquaresArgs& args) {
  return ArgumentCheck("SumSquares")
      .Tensor("in", args.in, kActivations, {kAnySize, kAnySize}, kMayBeStrided)
      .Tensor("out", args.out, {kF32}, {args.in.shape[0], 1}, kMayBeStrided)
      .status();
}

absl::Status CheckScale(const ScaleArgs& args) {
  return ArgumentCheck("Scale")
      .Tensor("rows", args.rows, kActivations, {kAnySize, kAnySize}, kMayBeStrided)
      .Optional("positions", args.positions, {kI32}, {args.rows.shape[0]})
      .That(args.soft_cap >= 0, "soft_cap", "not be negative")
      .That(args.limit >= 0, "limit", "not be negative")
      .That(args.position_period > 0, "position_period", "be above 0")
      .status();
}

absl::Status CheckGatherRows(const GatherRowsArgs& args) {
  return ArgumentCheck("GatherRows")
      .Tensor("in", args.in, kActivations, {kAnySize, kAnySize}, kMayBeStrided)
      .Tensor("out", args.out, {args.in.dtype}, {kAnySize, args.in.shape[1]}, kMayBeStrided)
      .Tensor("rows", args.rows, {kI32}, {args.out.shape[0]})
      .That(args.out.data != args.in.data || args.out.empty(), "out", "not alias in")
      .status();
}

absl::Status CheckFeedTokens(const FeedTokensArgs& args) {
  return ArgumentCheck("FeedTokens")
      .Tensor("ids", args.ids, {kI32}, {kAnySize})
      .Tensor("drawn", args.drawn, {kI32}, {kAnySize})
      .That(args.ids.data != args.drawn.data || args.ids.empty(), "ids", "not alias drawn")
      .status();
}

absl::Status CheckAdd(const AddArgs& args) {
  return ArgumentCheck("Add")
      .Tensor("in", args.in, kActivations, {kAnySize, kAnySize}, kMayBeStrided)
      .Tensor("out", args.out, {args.in.dtype}, {args.in.shape[0], args.in.shape[1]}, kMayBeStrided)
      .status();
}

absl::Status CheckActivate(const ActivationArgs& args, bool narrows) {
  const DType out = TypeOfOutput(args.out, args.in.dtype, narrows);
  return ArgumentCheck("Activate")
      .Tensor("in", args.in, kActivations, {kAnySize, kAnySize}, kMayBeStrided)
      .Tensor("out", args.out, {out}, {args.in.shape[0], args.in.shape[1]}, kMayBeStrided)
      .That(out == args.in.dtype || args.out.data != args.in.data, "out",
            "not alias in of another type")
      .status();
}

absl::Status CheckGatedActivate(const GatedActivationArgs& args, bool narrows) {
  return ArgumentCheck("GatedActivate")
      .Tensor("out", args.out, kActivations, {kAnySize, kAnySize}, kMayBeStrided)
      .Tensor("gate_up", args.gate_up, {TypeOfInput(args.gate_up, args.out.dtype, narrows)},
              {args.out.shape[0], 2 * args.out.shape[1]}, kMayBeStrided)
      .That(args.out.data != args.gate_up.data || args.out.empty(), "out", "not alias gate_up")
      .status();
}

absl::Status CheckClampedGate(const ClampedGateArgs& args, bool narrows) {
  return ArgumentCheck("ClampedGate")
      .Tensor("out", args.out, kActivations, {kAnySize, kAnySize}, kMayBeStrided)
      .Tensor("gate_up", args.gate_up, {TypeOfInput(args.gate_up, args.out.dtype, narrows)},
              {args.out.shape[0], 2 * args.out.shape[1]}, kMayBeStrided)
      .That(args.out.data != args.gate_up.data || args.out.empty(), "out", "not alias gate_up")
      .That(args.limit > 0, "limit", "be above 0")
      .status();
}

absl::Status CheckCausalConv(const CausalConvArgs& args) {
  const int64_t channels = args.rows.shape[1], taps = args.weights.shape[1];
  ArgumentCheck check("CausalConv");
  check.Tensor("rows", args.rows, {kF32}, {kAnySize, kAnySize}, kMayBeStrided)
      .Tensor("weights", args.weights, {kF32}, {channels, kAnySize})
      .That(taps >= 2 && taps <= kMaxConvTaps, "weights", "have 2 to 8 taps")
      .Tensor("states", args.states, {kF32}, {kAnySize, taps - 1, channels});
  return CheckSeats(args.at, check).status();
}

absl::Status CheckGatedDelta(const GatedDeltaArgs& args) {
  const int64_t tokens = args.values.shape[0], value_heads = args.values.shape[1];
  const int64_t key_heads = args.keys.shape[1], key_dim = args.keys.shape[2];
  ArgumentCheck check("GatedDelta");
  check.Tensor("values", args.values, {kF32}, {kAnySize, kAnySize, kAnySize}, kMayBeStrided)
      .Tensor("keys", args.keys, {kF32}, {tokens, kAnySize, kAnySize}, kMayBeStrided)
      .That(key_heads > 0 && value_heads % key_heads == 0, "keys",
            "have a number of heads that divides that of the values")
      .Tensor("queries", args.queries, {kF32}, {tokens, key_heads, key_dim}, kMayBeStrided)
      .Tensor("gates", args.gates, {kF32}, {tokens, 2 * value_heads}, kMayBeStrided)
      .Tensor("decay_log", args.decay_log, {kF32}, {value_heads})
      .Tensor("decay_bias", args.decay_bias, {kF32}, {value_heads})
      .Tensor("states", args.states, {kF32}, {kAnySize, value_heads, key_dim, args.values.shape[2]})
      .That(
          args.at.draft_rows.empty() || std::max(key_dim, args.values.shape[2]) <= kMaxDraftHeadDim,
          "draft_rows", "be empty where heads are wider than 256");
  return CheckSeats(args.at, check).status();
}

absl::Status CheckExpertBias(const ExpertBiasArgs& args) {
  const int64_t experts = args.biases.shape[0];
  return ArgumentCheck("ExpertBias")
      .Tensor("out", args.out, kActivations, {kAnySize, kAnySize}, kMayBeStrided)
      .Tensor("biases", args.biases, {kF32}, {kAnySize, args.out.shape[1]}, kMayBeStrided)
      .Tensor("expert_offsets", args.expert_offsets, {kI32}, {experts + 1})
      .status();
}

absl::Status CheckPackWeightRows(const PackedWeights& weights, int64_t first_row,
                                 const TensorView& source) {
  const LinearSpec& spec = weights.spec;
  ArgumentCheck check = CheckWeightRows("PackWeightRows", weights, first_row, source);
  if (!check.ok()) return std::move(check).status();
  if (spec.weight_dtype == kI4) {
    const int64_t row_bytes = Int4RowBytes(spec.in_features, spec.group_size, spec.blocks);
    check.Tensor("rows", source, {kI8}, {kAnySize, row_bytes}, kMayBeStrided);
  } else if (spec.weight_dtype == kF8 || (spec.weight_dtype == kI8 && source.dtype == kI8)) {
    const int64_t row_bytes = ByteRowBytes(spec.in_features, spec.group_size);
    check.Tensor("rows", source, {kI8}, {kAnySize, row_bytes}, kMayBeStrided);
  } else {
    check.Tensor("rows", source, {kF32, kF16, kBF16}, {kAnySize, spec.in_features}, kMayBeStrided);
  }
  return std::move(check).status();
}

absl::Status CheckUnpackWeightRows(const PackedWeights& weights, int64_t first_row,
                                   const TensorView& out_f32) {
  return CheckWeightRows("UnpackWeightRows", weights, first_row, out_f32)
      .Tensor("rows", out_f32, {kF32}, {kAnySize, weights.spec.in_features}, kMayBeStrided)
      .status();
}

absl::Status CheckLinear(const LinearArgs& args, int64_t workspace_bytes, bool fuses) {
  if (args.weights == nullptr || args.weights->data == nullptr) {
    return ArgumentCheck("Linear").That(false, "weights", "be given").status();
  }
  const LinearSpec& spec = args.weights->spec;
  return CheckSpec("Linear", spec)
      .Tensor("in", args.in, kActivations, {kAnySize, spec.in_features}, kMayBeStrided)
      .That(!args.silu_gate || fuses, "silu_gate", "be off: the device does not take it")
      .Tensor("out", args.out, kActivations,
              {args.in.shape[0], spec.out_features / (args.silu_gate ? 2 : 1)}, kMayBeStrided)
      .Optional("bias", args.bias, {kF32}, {spec.out_features})
      .That(args.out.data != args.in.data || args.out.empty(), "out", "not alias in")
      .That(IsActivation(args.products), "products", "be float32, float16 or bfloat16")
      .Workspace(args.workspace, workspace_bytes)
      .status();
}

absl::Status CheckGroupedLinear(const GroupedLinearArgs& args, int64_t workspace_bytes) {
  ArgumentCheck check("GroupedLinear");
  check.That(!args.experts.empty(), "experts", "be one or more");
  if (!check.ok()) return std::move(check).status();
  const LinearSpec& spec = args.experts[0].spec;
  for (const PackedWeights& expert : args.experts) {
    check.That(expert.data != nullptr && expert.spec == spec, "experts",
               "all have memory and the same LinearSpec");
  }
  const int64_t slots = args.out.shape[0];
  const int64_t rows = args.source_rows.empty() ? slots : kAnySize;
  check.Tensor("out", args.out, kActivations, {kAnySize, spec.out_features}, kMayBeStrided);
  check.Tensor("in", args.in, kActivations, {rows, spec.in_features}, kMayBeStrided);
  check.Optional("source_rows", args.source_rows, {kI32}, {slots});
  check.Tensor("expert_offsets", args.expert_offsets, {kI32},
               {static_cast<int64_t>(args.experts.size()) + 1});
  check.That(args.out.data != args.in.data || args.out.empty(), "out", "not alias in");
  check.That(IsActivation(args.products), "products", "be float32, float16 or bfloat16");
  check.Workspace(args.workspace, workspace_bytes);
  return std::move(check).status();
}

absl::Status CheckRopeTable(const RopeTableArgs& args) {
  ArgumentCheck check("RopeTable");
  check.Tensor("cos_sin", args.cos_sin, {kF32}, {kAnySize, kAnySize});
  check.That(args.cos_sin.shape[1] % 2 == 0, "cos_sin", "have an even rotary_dim");
  check.Tensor("positions", args.positions, {kI32}, {args.cos_sin.shape[0]});
  check.Tensor("inverse_frequencies", args.inverse_frequencies, {kF32},
               {args.cos_sin.shape[1] / 2});
  if (args.dynamic_factor != 0.0f) {
    check.Tensor("lengths", args.lengths, {kI32}, {args.cos_sin.shape[0]});
    check.That(args.original_max_position > 0, "original_max_position",
               "be above 0 with dynamic scaling");
    check.That(args.cos_sin.shape[1] > 2, "cos_sin", "have a rotary_dim above 2 when dynamic");
  }
  return std::move(check).status();
}

absl::Status CheckRope(const RopeArgs& args) {
  ArgumentCheck check("Rope");
  check.Tensor("q", args.q, kActivations, {kAnySize, kAnySize, kAnySize}, kMayBeStrided);
  check.Tensor("k", args.k, {args.q.dtype}, {args.q.shape[0], kAnySize, args.q.shape[2]},
               kMayBeStrided);
  check.Tensor("cos_sin", args.cos_sin, {kF32}, {args.q.shape[0], kAnySize});
  check.That(args.cos_sin.shape[1] % 2 == 0 && args.cos_sin.shape[1] <= args.q.shape[2], "cos_sin",
             "have an even rotary_dim of at most head_dim");
  return std::move(check).status();
}

absl::Status CheckKvWrite(const KvWriteArgs& args) {
  const TensorView& keys = args.cache.keys;
  const int64_t tokens = args.k.shape[0], kv_heads = args.k.shape[1], head_dim = args.k.shape[2];
  return ArgumentCheck("KvWrite")
      .Tensor("k", args.k, kActivations, {kAnySize, kAnySize, kAnySize}, kMayBeStrided)
      .Tensor("v", args.v, {args.k.dtype}, {tokens, kv_heads, head_dim}, kMayBeStrided)
      .Tensor("cache.keys", keys, kCaches,
              {kv_heads, kAnySize, kAnySize, KvRowElements(keys.dtype, head_dim)}, kMayBeStrided)
      .Tensor("cache.values", args.cache.values, {keys.dtype},
              {kv_heads, keys.shape[1], keys.shape[2], keys.shape[3]}, kMayBeStrided)
      .Tensor("slots", args.slots, {kI32}, {tokens})
      .status();
}

absl::Status CheckKvCode(const char* op, const KvWireArgs& args, bool decodes) {
  const TensorView& cache = args.cache;
  const DType type = decodes ? args.wire_dtype : cache.dtype;
  const int64_t bytes =
      KvPlanesBytes(args.values_first, cache.shape[0], cache.shape[1], args.slots.rows(),
                    cache.shape[3], args.coding, SizeInBytes(type));
  return ArgumentCheck(op)
      .Tensor("cache", cache, kCaches, {kAnySize, kAnySize, kAnySize, kAnySize}, kMayBeStrided)
      .Tensor("slots", args.slots, {kI32}, {kAnySize})
      .That(IsActivation(type) || type == cache.dtype, "wire_dtype",
            "be float32, float16 or bfloat16, or the cache's type")
      .That(!HasKvScales(cache.dtype) || (args.coding == KvWireCoding::kRaw && type == cache.dtype),
            "cache", "be sent and come raw where it is int8 or float8")
      .Tensor("wire", args.wire, {kI8}, {bytes})
      .status();
}

absl::Status CheckPrepareAttention(const PrepareAttentionArgs& args) {
  absl::Status check =
      CheckKvWrite({.cache = args.cache, .k = args.k, .v = args.v, .slots = args.slots});
  if (!check.ok()) return check;
  const int64_t tokens = args.k.shape[0], head_dim = args.k.shape[2];
  return ArgumentCheck("PrepareAttention")
      .Tensor("q", args.q, {args.k.dtype}, {tokens, kAnySize, head_dim}, kMayBeStrided)
      .Optional("q_norm", args.q_norm, {kF32}, {head_dim})
      .Optional("k_norm", args.k_norm, {kF32}, {head_dim})
      .That(args.q_norm.empty() == args.k_norm.empty(), "k_norm", "be there if q_norm is")
      .Optional("cos_sin", args.cos_sin, {kF32}, {tokens, kAnySize})
      .That(args.cos_sin.shape[1] % 2 == 0 && args.cos_sin.shape[1] <= head_dim, "cos_sin",
            "have an even rotary_dim of at most head_dim")
      .status();
}

absl::Status CheckAttention(const AttentionArgs& args, int64_t workspace_bytes) {
  const TensorView& keys = args.cache.keys;
  const int64_t heads = args.q.shape[1], head_dim = args.q.shape[2];
  const int64_t sequences = args.context_lengths.shape[0];
  return ArgumentCheck("Attention")
      .Tensor("q", args.q, kActivations, {kAnySize, kAnySize, kAnySize}, kMayBeStrided)
      .Tensor("out", args.out, {args.q.dtype}, {args.q.shape[0], heads, head_dim}, kMayBeStrided)
      .Tensor("cache.keys", keys, kCaches,
              {kAnySize, kAnySize, kAnySize, KvRowElements(keys.dtype, head_dim)}, kMayBeStrided)
      .Tensor("cache.values", args.cache.values, {keys.dtype},
              {keys.shape[0], keys.shape[1], keys.shape[2], keys.shape[3]}, kMayBeStrided)
      .That(keys.shape[0] > 0 && heads % keys.shape[0] == 0, "q",
            "have a number of heads that the cache's kv_heads divide")
      .Tensor("context_lengths", args.context_lengths, {kI32}, {kAnySize})
      .Tensor("query_starts", args.query_starts, {kI32}, {sequences + 1})
      .Tensor("block_tables", args.block_tables, {kI32}, {sequences, kAnySize}, kMayBeStrided)
      .That(args.scale > 0, "scale", "be above 0")
      .That(args.window >= 0, "window", "not be negative")
      .That(!args.chunked || args.window > 0, "chunked", "be given with a window")
      .That(args.soft_cap >= 0, "soft_cap", "not be negative")
      .Optional("sinks", args.sinks, {kF32}, {heads})
      .That(args.out.data != args.q.data || args.out.empty(), "out", "not alias q")
      .That(IsActivation(args.products), "products", "be float32, float16 or bfloat16")
      .Workspace(args.workspace, workspace_bytes)
      .status();
}

AttentionShape ShapeOf(const AttentionArgs& args) {
  return {.tokens = args.q.shape[0],
          .sequences = args.context_lengths.shape[0],
          .heads = args.q.shape[1],
          .kv_heads = args.cache.keys.shape[0],
          .head_dim = args.q.shape[2],
          .max_context_tokens = args.block_tables.shape[1] * args.cache.keys.shape[2],
          .activation_dtype = args.q.dtype};
}

absl::Status CheckMoeScores(const MoeScoresArgs& args) {
  return ArgumentCheck("MoeScores")
      .Tensor("scores", args.scores, {kF32}, {kAnySize, kAnySize}, kMayBeStrided)
      .That(args.kind != RouterScores::kSparseMixer || args.scores.shape[1] >= 2, "scores",
            "be of two experts at least")
      .status();
}

absl::Status CheckMoeRoute(const MoeRouteArgs& args) {
  const int64_t rows = args.weights.shape[0], k = args.weights.shape[1];
  const int64_t experts = args.logits.shape[1];
  return ArgumentCheck("MoeRoute")
      .Tensor("weights", args.weights, {kF32}, {kAnySize, kAnySize})
      .Tensor("logits", args.logits, {kF32}, {rows, kAnySize}, kMayBeStrided)
      .That(k > 0 && k <= experts, "weights", "choose between 1 and all of the experts per row")
      .Tensor("slots", args.slots, {kI32}, {rows, k})
      .Tensor("source_rows", args.source_rows, {kI32}, {rows * k})
      .Tensor("expert_offsets", args.expert_offsets, {kI32}, {experts + 1})
      .Optional("choice_bias", args.choice_bias, {kF32}, {experts})
      .Optional("expert_scales", args.expert_scales, {kF32}, {experts})
      .That(args.scored || (args.choice_bias.empty() && args.groups == 1), "logits",
            "be scores where a bias or groups decide")
      .That(args.groups >= 1 && args.groups <= kMaxExpertGroups && experts % args.groups == 0 &&
                (args.groups == 1 || experts / args.groups >= 2),
            "groups", "cut the experts into 1 to 64 equal groups of at least two")
      .That(args.groups_per_row >= 1 && args.groups_per_row <= args.groups &&
                args.groups_per_row * (experts / std::max<int64_t>(1, args.groups)) >= k,
            "groups_per_row", "leave as many experts as a row uses")
      .status();
}

absl::Status CheckMoeCombine(const MoeCombineArgs& args) {
  const int64_t rows = args.weights.shape[0], k = args.weights.shape[1];
  return ArgumentCheck("MoeCombine")
      .Tensor("weights", args.weights, {kF32}, {kAnySize, kAnySize})
      .Tensor("slots", args.slots, {kI32}, {rows, k})
      .Tensor("in", args.in, kActivations, {rows * k, kAnySize}, kMayBeStrided)
      .Tensor("out", args.out, {args.in.dtype}, {rows, args.in.shape[1]}, kMayBeStrided)
      .Optional("held", args.held, {kI32}, {kAnySize})
      .Optional("shared", args.shared, {args.in.dtype}, {rows, args.in.shape[1]})
      .Optional("shared_gate", args.shared_gate, {kF32}, {rows, 1})
      .That(args.shared_gate.empty() || !args.shared.empty(), "shared", "be there if its gate is")
      .That(args.out.data != args.in.data || args.out.empty(), "out", "not alias in")
      .status();
}

absl::Status CheckLogSoftmax(const LogSoftmaxArgs& args) {
  return ArgumentCheck("LogSoftmax")
      .Tensor("in", args.in, {kF32}, {kAnySize, kAnySize}, kMayBeStrided)
      .Tensor("out", args.out, {kF32}, {args.in.shape[0], args.in.shape[1]}, kMayBeStrided)
      .status();
}

absl::Status CheckTopK(const TopKArgs& args) {
  const int64_t rows = args.values.shape[0], k = args.values.shape[1];
  return ArgumentCheck("TopK")
      .Tensor("values", args.values, {kF32}, {kAnySize, kAnySize})
      .Tensor("indices", args.indices, {kI32}, {rows, k})
      .Tensor("in", args.in, {kF32}, {rows, kAnySize}, kMayBeStrided)
      .That(k > 0 && k <= args.in.shape[1], "values", "ask for between 1 and all of a row's values")
      .status();
}

absl::Status CheckSample(const SampleArgs& args, int64_t workspace_bytes) {
  const int64_t rows = args.token_ids.shape[0];
  ArgumentCheck check("Sample");
  check.Tensor("token_ids", args.token_ids, {kI32}, {kAnySize})
      .Tensor("logits", args.logits, {kF32}, {rows, kAnySize}, kMayBeStrided)
      .That(args.logits.shape[1] > 0, "logits", "have a vocabulary above 0")
      .Tensor("temperature", args.temperature, {kF32}, {rows})
      .Tensor("top_p", args.top_p, {kF32}, {rows})
      .Tensor("min_p", args.min_p, {kF32}, {rows})
      .Tensor("top_k", args.top_k, {kI32}, {rows})
      .Tensor("repetition_penalty", args.repetition_penalty, {kF32}, {rows})
      .Tensor("presence_penalty", args.presence_penalty, {kF32}, {rows})
      .Tensor("frequency_penalty", args.frequency_penalty, {kF32}, {rows})
      .Tensor("seeds", args.seeds, {kU64}, {rows})
      .Tensor("choices", args.choices, {kI32}, {rows})
      .Tensor("positions", args.positions, {kI32}, {rows})
      .Tensor("history_offsets", args.history_offsets, {kI32}, {rows + 1})
      .Tensor("history_ids", args.history_ids, {kI32}, {kAnySize})
      .Tensor("history_counts", args.history_counts, {kI32}, {args.history_ids.shape[0]})
      .Tensor("bias_offsets", args.bias_offsets, {kI32}, {rows + 1})
      .Tensor("bias_ids", args.bias_ids, {kI32}, {kAnySize})
      .Tensor("bias_values", args.bias_values, {kF32}, {args.bias_ids.shape[0]})
      .Workspace(args.workspace, workspace_bytes);
  if (!args.masks.empty()) {
    check.Tensor("masks", args.masks, {kI32}, {kAnySize, (args.logits.shape[1] + 31) / 32})
        .Tensor("mask_rows", args.mask_rows, {kI32}, {rows});
  }
  return std::move(check).status();
}

}  // namespace tessera::kernels
