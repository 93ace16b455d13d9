// Every operation a transformer is built from, once. Each device implements this interface
// (kernels/cpu, kernels/cuda); the plain loops in kernels/cpu/reference are the oracle every
// implementation is held against by tests/kernels/conformance.
//
// Rules that hold for every op:
//   - Asynchronous on `stream`; arguments are copied at the call. Tensors, and what
//     EmbeddingArgs::packed, LinearArgs::weights and GroupedLinearArgs::experts point to, must live
//     until the work ran.
//   - Allocates nothing. Ops that need scratch say how much through *WorkspaceBytes and take it as
//     `workspace` (64-byte aligned); one workspace of the maximum may serve all ops of one stream.
//   - The host never reads device data: positions, slots, lengths, counts and sampling parameters
//     are device tensors at fixed addresses, so that a step can be captured once and replayed (CUDA
//     graphs). Padded rows are legal: token id -1 embeds to zeros, slot -1 writes nothing, a
//     sequence of zero query rows computes nothing.
//   - Returns InvalidArgument naming op, tensor and shape when shapes or types do not fit; nothing
//     is enqueued.
//   - Activations are f32, f16 or bf16 (16 bits where ComputesIn says so: CPUs have no f16, GPUs
//     below compute capability 8.0 no bf16); in and out of one op have the same type unless said
//     otherwise.
//     "f32 invariance": with f32 activations and weights a row's result has the same bits whatever
//     other rows are in the call (sums run in an order fixed by the row's own extent alone).
//   - Outputs may not alias inputs unless the op says "in place".
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "kernels/kv_rows.h"
#include "kernels/kv_wire.h"
#include "kernels/offset_blocks.h"
#include "kernels/tensor.h"

namespace tessera::kernels {

// ---- Weights of linears -------------------------------------------------------------------------

struct LinearSpec {
  int64_t in_features = 0;
  int64_t out_features = 0;
  // f32, f16, bf16; f8, i8 (weight-only, f32 scales); i4 (weight-only, kernels/int4_rows.h)
  DType weight_dtype = DType::kF32;
  int64_t group_size = 128;  // f8, i8, i4: inputs that share one scale, per output row; <= 128
  OffsetBlocks blocks = {};  // i4 with an offset
  // i8, of rows of bytes: every code is twice a number of e2m1 (0, 1, 2, 3, 4, 6, 8, 12, or one of
  // these less than 0), so that a device may keep four bits of it.
  bool e2m1 = false;

  bool operator==(const LinearSpec&) const = default;
};

// A matrix as a checkpoint has it: blocks of rows, one below the other, that cover it in order.
struct UnpackedRows {
  struct Block {
    int64_t first_row = 0;
    TensorView rows;  // [rows, in_features]; host memory, may be strided
  };
  std::vector<Block> blocks;
  // Rows before this one stand in PackedWeights::data; set with release, and only ever higher. Ops
  // look at it as they go: the blocks' memory must outlive those that began before it was set.
  std::atomic<int64_t> packed_rows = 0;
};

// Weights in the layout this implementation computes with. `data` is device memory that the caller
// allocated with PackedWeightBytes.
struct PackedWeights {
  LinearSpec spec;
  std::byte* data = nullptr;
  // Optional, where Ops::ComputesUnpacked: what stands for `data` until it is packed. Results have
  // the same bits either way.
  const UnpackedRows* unpacked = nullptr;
};

// ---- Rows in, rows out --------------------------------------------------------------------------

struct EmbeddingArgs {
  TensorView out;         // [tokens, hidden] f32|f16|bf16
  TensorView table = {};  // [vocabulary_rows, hidden] f32|f16|bf16
  // Instead of a table: the rows of a linear's weights, exactly, into an f32 `out` and without
  // `accumulate`. A head that shares its matrix with the embedding need not be kept twice.
  const PackedWeights* packed = nullptr;
  TensorView ids;  // [tokens] i32; outside [begin, begin+rows) gives zeros (padding, other shard)
  int64_t vocabulary_begin = 0;  // id of the table's first row
  bool accumulate = false;       // out += row (learned positions on top of token embeddings)
};

struct NormArgs {
  TensorView out;            // [rows, width]; may be of LinearInputs where `in` is f32
  TensorView in;             // [rows, width]
  TensorView residual = {};  // [rows, width], optional, in place: += in, and the sum is normalised
  TensorView weight;         // [width] f32; or [heads, width], where each head has its own
  TensorView bias = {};      // [width] f32, LayerNorm only, may be empty
  float epsilon = 1e-5f;
  // RmsNorm of rows that are parts of wider ones: [rows, 1] f32, the sums of the squares of
  // `whole_width` elements (SumSquares, added up over the parts), in place of those of `in`.
  TensorView squares = {};
  int64_t whole_width = 0;
};  // for qk-norm: [tokens, heads, head_dim], tokens may be strided; `out` may equal `in`

struct SumSquaresArgs {
  TensorView out;  // [rows, 1] f32, may be strided
  TensorView in;   // [rows, width], may be strided
};

struct GatherRowsArgs {
  TensorView out;   // [count, width]
  TensorView in;    // [rows, width], same type
  TensorView rows;  // [count] i32; -1 gives zeros
};

// Token ids that the host does not know yet: an id of kFedToken - i stands for drawn[i].
inline constexpr int32_t kFedToken = -2;
struct FeedTokensArgs {
  TensorView ids;    // [tokens] i32, in place; ids above kFedToken stay
  TensorView drawn;  // [rows] i32; a row that is not there, or holds no token, feeds -1 (padding)
};

struct AddArgs {
  TensorView out;  // [rows, width], in place: out += in
  TensorView in;   // [rows, width]
};

// What multipliers, logit scales, soft caps and limits of models do to rows.
struct ScaleArgs {
  TensorView rows;  // [rows, width], in place; may be strided: x becomes x * factor
  float factor = 1.0f;
  float soft_cap = 0.0f;  // above 0: soft_cap * tanh(x * factor / soft_cap) instead
  float limit = 0.0f;     // above 0: then kept within [-limit, limit]
  // Optional, [rows] i32: the factor of the row at a position, where it is not negative, is
  // multiplied by 1 + position_gain * ln(1 + floor((position + position_offset) /
  // position_period)).
  TensorView positions = {};
  float position_gain = 0.0f;
  int32_t position_period = 1, position_offset = 0;
};

// Formulas of transformers' activations (torch.nn and activations.py), whose names these are.
enum class Activation {
  kSilu,
  kGeluErf,
  kGeluTanh,
  kRelu,
  kRelu2,      // relu(x)^2
  kRelu6,      // relu(x), at most 6
  kLeakyRelu,  // x, where negative x / 100
  kSigmoid,
  kTanh,
  kLinear,
  kHardSwish,     // x relu6(x + 3) / 6
  kMish,          // x tanh(ln(1 + e^x))
  kLaplace,       // (1 + erf((x - 0.707107) / (0.282095 sqrt 2))) / 2
  kQuickGelu,     // x sigmoid(1.702 x)
  kGelu10,        // kGeluErf, from -10 to 10
  kSqrtSoftplus,  // sqrt(ln(1 + e^x))
};

struct ActivationArgs {
  TensorView out;  // [rows, n]; may equal `in`, or be of LinearInputs where that is f32
  TensorView in;   // [rows, n]
  Activation kind = Activation::kRelu;
};

struct GatedActivationArgs {
  TensorView out;      // [rows, n] = act(gate) * up; may be of LinearInputs where gate_up is f32
  TensorView gate_up;  // [rows, 2n]: gate columns, then up columns
  Activation kind = Activation::kSilu;
};

// gpt-oss: with g = min(gate, limit), u = up within [-limit, limit], out = (u + 1) * g *
// sigmoid(alpha * g).
struct ClampedGateArgs {
  TensorView out;      // [rows, n]; as in GatedActivationArgs
  TensorView gate_up;  // [rows, 2n]: gate columns, then up columns
  float limit = 7.0f;
  float alpha = 1.702f;
};

// ---- Linear -------------------------------------------------------------------------------------

struct LinearArgs {
  TensorView out;  // [rows, out_features] f32|f16|bf16; [rows, out_features / 2] with silu_gate
  TensorView in;   // [rows, in_features] f32|f16|bf16
  const PackedWeights* weights = nullptr;
  TensorView bias = {};  // optional [out_features] f32
  TensorView workspace = {};
  DType products = DType::kF32;  // see below
  // Where Ops::FusesSiluGate: what GatedActivate by SiLU makes of the product, with its bits.
  bool silu_gate = false;
};  // f32 invariance

// LinearArgs::products: f32 keeps f32 activations as they are, whatever the weights. With bf16, f32
// activations may be rounded to bf16 before bf16, f8, i8 or i4 weights meet them, which is several
// times faster where the processor multiplies bf16 pairs; the same with f16, on GPUs alone. Sums
// are f32 in any case.

// One linear per expert over rows sorted by expert.
struct GroupedLinearArgs {
  TensorView out;  // [slots, out_features], slot order
  TensorView in;   // [rows, in_features]
  absl::Span<const PackedWeights> experts;
  TensorView source_rows = {};  // [slots] i32: which row of `in` a slot reads; empty: its own
  // [experts + 1] i32: slots [offsets[e], offsets[e+1]) use expert e. Slots before the first and
  // behind the last, of experts that another rank has, are left as they are.
  TensorView expert_offsets;
  TensorView workspace = {};
  DType products = DType::kF32;  // as in LinearArgs
};

// A linear of its own for each head: row t * heads + h is multiplied by the weights of head h.
struct HeadLinearArgs {
  TensorView out;  // [tokens * heads, out_features]; may be strided
  TensorView in;   // [tokens * heads, in_features]; may be strided
  absl::Span<const PackedWeights> heads;
  TensorView workspace = {};     // LinearWorkspaceBytes of `tokens` rows
  DType products = DType::kF32;  // as in LinearArgs
};                               // f32 invariance

// Adds to the rows of slots what their experts have beside a matrix.
struct ExpertBiasArgs {
  TensorView out;             // [slots, n], in place
  TensorView biases;          // [experts, n] f32
  TensorView expert_offsets;  // as in GroupedLinearArgs
};

// ---- Attention ----------------------------------------------------------------------------------

struct RopeTableArgs {
  TensorView cos_sin;              // out [tokens, rotary_dim] f32: cosines, then sines
  TensorView positions;            // [tokens] i32; negative: identity rotation
  TensorView inverse_frequencies;  // [rotary_dim/2] f32
  float attention_factor = 1.0f;   // multiplies cos and sin (yarn); 1 elsewhere
  // Dynamic NTK scaling (0 = off): where lengths[t] > original_max_position the base grows with the
  // length: theta' = theta * (factor * length / original - (factor - 1)) ^ (d / (d - 2)).
  float dynamic_factor = 0.0f;
  float theta = 10000.0f;
  int64_t original_max_position = 0;
  TensorView lengths = {};  // [tokens] i32, dynamic only: the length a token's rotation is made for
};

struct RopeArgs {
  TensorView q;        // [tokens, heads, head_dim], in place; may be a strided slice
  TensorView k;        // [tokens, kv_heads, head_dim], in place
  TensorView cos_sin;  // [tokens, rotary_dim] f32 from RopeTable; rotates the first rotary_dim of
                       // each head, halves paired
};

// One layer's paged KV: [kv_heads, blocks, block_tokens, head_dim], f32|f16|bf16; or i8|f8, with
// KvRowElements(dtype, head_dim) in place of head_dim: codes and a scale (kernels/kv_rows.h), which
// KvWrite makes of a token's key or value of a head, and of nothing beside it. Attention reads it
// head by head: so the blocks of a context, where they have numbers in sequence, are one stream to
// the memory of a CPU, which a processor reads ahead by itself. (In runs of a block, 2 KB of 8,
// memory gave 0.55 of its rate.) May be strided. Where a layer's values are its keys, or columns of
// them, `values` is `keys`, and KvWriteArgs::v is KvWriteArgs::k.
struct KvCacheView {
  TensorView keys;
  TensorView values;
};

struct KvWriteArgs {
  KvCacheView cache;
  TensorView k;      // [tokens, kv_heads, head_dim]; may be a strided slice
  TensorView v;      // same
  TensorView slots;  // [tokens] i32: block * block_tokens + offset; -1 writes nothing
};

// Keys and values that go to another replica, or come from one, as the bytes of `wire`
// (kernels/kv_wire.h). Codes and scales are those of kvcache's codecs, bit for bit.
struct KvWireArgs {
  // [planes, kv_heads, slots, head_dim] f32|f16|bf16|i8|f8: keys of a layer, its values, keys of
  // the next one; may be strided. Rows of i8 and f8 as KvCacheView has them.
  TensorView cache;
  bool values_first = false;  // the first plane is a layer's values
  TensorView slots;           // [tokens] i32, each below the cache's; no two the same
  TensorView wire;            // [KvPlanesBytes] i8
  KvWireCoding coding = KvWireCoding::kRaw;
  DType wire_dtype = DType::kF32;  // DecodeKv, raw: the type of the elements that come
};  // A cache of i8 or f8 goes raw, and comes raw and in its own type.

// What lies between the projections and Attention, in one pass where the device can: RmsNorm of the
// heads of q and k, then Rope, then KvWrite. Results are those of the three.
struct PrepareAttentionArgs {
  TensorView q;  // [tokens, heads, head_dim], in place; may be a strided slice, as k and v
  TensorView k;  // [tokens, kv_heads, head_dim], in place
  TensorView v;  // [tokens, kv_heads, head_dim]
  TensorView q_norm = {};   // [head_dim] f32; empty, as k_norm: no norm
  TensorView k_norm = {};   // [head_dim] f32
  float epsilon = 1e-5f;    // of the norms
  TensorView cos_sin = {};  // as in RopeArgs; empty: no rotation
  KvCacheView cache;
  TensorView slots;  // as in KvWriteArgs
};

// Rows of a sequence that devices may compute as they compute one row, for its bits.
inline constexpr int64_t kFewSequenceRows = 8;
// What the host knows of the rows that each sequence of a call has, beside none: one; more than
// kFewSequenceRows; or either of these.
enum class RowsPerSequence { kAny, kOne, kMany, kOneOrMany };

// Causal attention over paged KV for prefill chunks and decode rows in one call. Row i of sequence
// s is the token at position context_lengths[s] - query_rows(s) + i and sees keys 0..position (or
// the last `window` of them, or those of its chunk). The keys of these rows are already in the
// cache. Rows of no sequence are left as they are.
struct AttentionArgs {
  TensorView out;  // [tokens, heads, head_dim]; may be of LinearInputs where q is f32
  TensorView q;    // [tokens, heads, head_dim]; may be a strided slice
  KvCacheView cache;
  TensorView query_starts;     // [sequences + 1] i32: first row of each sequence
  TensorView context_lengths;  // [sequences] i32: tokens in the cache, these rows included
  TensorView block_tables;     // [sequences, max_blocks] i32
  float scale = 1.0f;          // above 0
  int64_t window = 0;          // 0: all
  bool chunked = false;        // with `window`: keys from the last multiple of it on, instead
  float soft_cap = 0.0f;       // above 0: scores become soft_cap * tanh(score / soft_cap)
  // [heads] f32, optional: a score of each head that counts among those of its keys, and has no
  // value.
  TensorView sinks = {};
  TensorView workspace = {};
  // bf16, f16: where keys and values are of that type, queries and the weights of the values may be
  // rounded to it too; sums are f32 in any case. Scores beyond 10^8 count as equal then.
  DType products = DType::kF32;
  // Must be true; a device may leave out what has nothing to do then.
  RowsPerSequence rows_per_sequence = RowsPerSequence::kAny;
};  // f32 invariance; heads % kv_heads == 0, query head h reads kv head h / (heads / kv_heads)

struct AttentionShape {
  int64_t tokens = 0, sequences = 0, heads = 0, kv_heads = 0, head_dim = 0, max_context_tokens = 0;
  DType activation_dtype = DType::kF32;
};

// ---- Gated delta net ----------------------------------------------------------------------------

// What a mixer keeps of each sequence stands in its seat: memory of fixed size. A sequence whose
// first row is at position 0 starts from zeros, whatever its seat holds.
struct SeatArgs {
  TensorView query_starts;     // [sequences + 1] i32: first row of each sequence
  TensorView context_lengths;  // [sequences] i32: tokens up to its last row, that one included
  TensorView seats;            // [sequences] i32, no two alike; -1, or no rows: nothing is touched
  // [sequences] i32, fewer than the sequence's rows; optional. So many last rows of a sequence are
  // computed and leave nothing: its seat has what stands before them.
  TensorView draft_rows = {};
};
// The heads of a delta net, where rows leave nothing.
inline constexpr int64_t kMaxDraftHeadDim = 256;

// A causal convolution of each channel over the rows of a sequence, then SiLU.
struct CausalConvArgs {
  TensorView rows;     // [tokens, channels] f32, in place; may be strided
  TensorView weights;  // [channels, taps] f32, 2 to kMaxConvTaps taps; the last is the row's own
  TensorView states;   // [seats, taps - 1, channels] f32: a sequence's last inputs, oldest first
  SeatArgs at;
};  // f32 invariance, and the same bits however a sequence is cut into calls
inline constexpr int64_t kMaxConvTaps = 8;

// The gated delta rule, row by row. With k of length 1 and q of length 1 / sqrt(key_dim) (both over
// sqrt(squares + 1e-6)), and a state S [key_dim, value_dim] of each value head:
//   S *= exp(-exp(decay_log) * softplus(a + decay_bias));  S += k (sigmoid(b) * (v - k S));
//   out = q S
// Value head h reads the q and k of key head h / (value_heads / key_heads).
// Source: torch_recurrent_gated_delta_rule of transformers' modeling_qwen3_5.py.
struct GatedDeltaArgs {
  TensorView values;      // [tokens, value_heads, value_dim] f32, in place: v, then out; strided
  TensorView queries;     // [tokens, key_heads, key_dim] f32; may be strided, as keys
  TensorView keys;        // [tokens, key_heads, key_dim] f32
  TensorView gates;       // [tokens, 2 * value_heads] f32: b of each value head, then a; strided
  TensorView decay_log;   // [value_heads] f32
  TensorView decay_bias;  // [value_heads] f32
  TensorView states;      // [seats, value_heads, key_dim, value_dim] f32
  SeatArgs at;
};  // f32 invariance, and the same bits however a sequence is cut into calls

// ---- Mixture of experts -------------------------------------------------------------------------

enum class RouterScores { kSoftmax, kSigmoid, kSparseMixer };

// A router's logits as scores between 0 and 1: softmax over a row, or the sigmoid of each. Or the
// weights of a row's two experts, and 0 of all others (Phi-3.5-MoE): the largest logit m, with its
// softmax among the logits x where (m - x) / max(|x|, m) <= 2 * jitter; then the same of the others
// without it, still against |x| of these (ties: lower index).
struct MoeScoresArgs {
  TensorView scores;  // [rows, experts] f32, in place
  RouterScores kind = RouterScores::kSoftmax;
  // With kSparseMixer, which needs two experts at least.
  float jitter = 0;
};  // f32 invariance

// Limits of MoeRouteArgs::groups.
inline constexpr int64_t kMaxExpertGroups = 64;

// softmax over experts, best k per row (ties: lower index), optionally renormalised to sum 1; then
// the slots sorted by expert for GroupedLinear, rows in order within an expert.
//
// With `scored`, logits are scores that MoeScores made, or ranks agreed on: the weights are the
// scores themselves, and what is chosen by is score + choice_bias. Of `groups` of consecutive
// experts, those of the `groups_per_row` best are chosen from; a group counts as much as the two
// best of its experts together. From equal scores all devices choose equally: they add, and
// compare.
struct MoeRouteArgs {
  TensorView logits;          // [rows, experts] f32
  TensorView weights;         // out [rows, k] f32
  TensorView slots;           // out [rows, k] i32: slot of (row, j) in the sorted order
  TensorView source_rows;     // out [rows*k] i32
  TensorView expert_offsets;  // out [experts + 1] i32
  bool renormalise = true;
  bool scored = false;
  TensorView choice_bias = {};    // [experts] f32, optional, with `scored`
  int64_t groups = 1;             // divide experts, into groups of two at least where above 1
  int64_t groups_per_row = 1;     // hold k experts or more
  bool groups_by_best = false;    // a group counts as much as its best expert alone
  float factor = 1;               // on the weights
  TensorView expert_scales = {};  // [experts] f32, optional: on the weights of each, at last
};

struct MoeCombineArgs {
  TensorView out;      // [rows, hidden] = sum over j of weights[row, j] * in[slots[row, j]]
  TensorView in;       // [rows*k, hidden]
  TensorView weights;  // [rows, k] f32
  TensorView slots;    // [rows, k] i32
  // [held + 1] i32, optional: only slots [held[0], held[last]) count, those of this rank's experts.
  TensorView held = {};
  // [rows, hidden], optional, may equal `out`: what an expert made that all rows use; added, with
  // `shared_gate` [rows, 1] f32 times the sigmoid of it.
  TensorView shared = {};
  TensorView shared_gate = {};
};

// ---- The end of a step --------------------------------------------------------------------------

struct LogSoftmaxArgs {
  TensorView out;  // [rows, n] f32; may equal `in`
  TensorView in;   // [rows, n] f32
};

struct TopKArgs {
  TensorView values;   // out [rows, k] f32, descending; ties: lower index first
  TensorView indices;  // out [rows, k] i32
  TensorView in;       // [rows, n] f32
};

// What Sample writes where there is no token to pick.
inline constexpr int32_t kLogitsNotFinite = -1;  // a logit of the row, as given, is NaN or infinite
inline constexpr int32_t kNothingToPick = -2;    // bias bans every id

// The least temperature that is not 0.
inline constexpr float kMinTemperature = 1e-6f;

// Picks one token per row. Order: bias, penalties, (temperature below kMinTemperature: argmax,
// ties to the lower id), temperature, min_p, top_k, top_p, inverse CDF in token-id order with the
// uniform number Philox4x32(seed, choice, position). History and bias are sparse rows: entry e of
// row r stands in [offsets[r], offsets[r+1]). Bias and penalties leave a logit that is not banned
// within the finite numbers, whatever their own values. Masks come behind both: bit id % 32 of word
// id / 32 says whether an id may be drawn.
struct SampleArgs {
  TensorView token_ids;                  // out [rows] i32, or one of the two constants above
  TensorView logits;                     // [rows, vocabulary] f32; overwritten
  TensorView temperature, top_p, min_p;  // [rows] f32; top_p 1 and min_p 0 are off
  TensorView top_k;                      // [rows] i32; 0 is off
  TensorView repetition_penalty, presence_penalty, frequency_penalty;  // [rows] f32; off: 1, 0, 0
  TensorView seeds;                                                    // [rows] u64
  TensorView choices, positions;                                       // [rows] i32
  TensorView history_offsets;                                          // [rows + 1] i32
  TensorView history_ids;     // [entries] i32, unique within a row: every id of prompt and output
                              // (repetition)
  TensorView history_counts;  // [entries] i32: how often in the output (presence, frequency); 0:
                              // prompt only
  TensorView bias_offsets;    // [rows + 1] i32
  TensorView bias_ids;        // [entries] i32
  TensorView bias_values;     // [entries] f32 added to the logit; -inf bans
  TensorView masks = {};      // [masks, ceil(vocabulary / 32)] i32; empty: every row draws from all
  TensorView mask_rows = {};  // with masks: [rows] i32, the row's among them; -1: draws from all
  TensorView workspace = {};
};

class Ops {
 public:
  virtual ~Ops() = default;
  // The kernels' path: "reference", "avx2", ... (kernels/cpu/isa.h).
  virtual std::string name() const = 0;
  // Whether models are to be computed in this type (f32, f16 or bf16): the ops take it, and as fast
  // as any of its size. CUDA's take all three, bf16 from compute capability 8.0 on; on CPUs only
  // the reference's take f16, for tests.
  virtual bool ComputesIn(DType dtype) const { return dtype != DType::kF16; }

  // The type of `in` with which a Linear of so many rows, of such products and with an f32 `out`,
  // does least work. Where it is not f32, Linear takes it, and ops that say so write it.
  virtual DType LinearInputs(const LinearSpec& /*spec*/, int64_t /*rows*/,
                             DType /*products*/) const {
    return DType::kF32;
  }

  // Whether Linear takes silu_gate for an even number of f32 outputs of so many f32 rows.
  virtual bool FusesSiluGate(const LinearSpec& /*spec*/, int64_t /*rows*/,
                             DType /*products*/) const {
    return false;
  }

  // Whether linears with such groups of codes (f8, i8, i4) are worth their bytes. Where they are
  // not, linears take them too, but only the plain kernel does.
  virtual bool ComputesCodes(const LinearSpec& /*spec*/) const { return true; }

  virtual absl::Status Embedding(const EmbeddingArgs& args, Stream& stream) = 0;
  virtual absl::Status RmsNorm(const NormArgs& args, Stream& stream) = 0;
  virtual absl::Status LayerNorm(const NormArgs& args, Stream& stream) = 0;
  virtual absl::Status SumSquares(const SumSquaresArgs& args, Stream& stream) = 0;
  virtual absl::Status Scale(const ScaleArgs& args, Stream& stream) = 0;
  virtual absl::Status GatherRows(const GatherRowsArgs& args, Stream& stream) = 0;
  virtual absl::Status FeedTokens(const FeedTokensArgs& args, Stream& stream) = 0;
  virtual absl::Status Add(const AddArgs& args, Stream& stream) = 0;
  virtual absl::Status Activate(const ActivationArgs& args, Stream& stream) = 0;
  virtual absl::Status GatedActivate(const GatedActivationArgs& args, Stream& stream) = 0;
  virtual absl::Status ClampedGate(const ClampedGateArgs& args, Stream& stream) = 0;

  virtual int64_t PackedWeightBytes(const LinearSpec& spec) const = 0;
  // Whether PackedWeights::unpacked may be given.
  virtual bool ComputesUnpacked(const LinearSpec& spec, const UnpackedRows& rows) const = 0;
  // Load time only, synchronous, host memory in: rows [first_row, first_row + source.rows()) of the
  // weight matrix [out_features, in_features] as f32|f16|bf16, converted (i8: quantised, round to
  // nearest, scale = max|w| / 127 per row and group). Of i4 and f8 weights the source is rows of
  // bytes, of i8 weights it may be: i8 [rows, Int4RowBytes] (kernels/int4_rows.h) or i8 [rows,
  // ByteRowBytes] (kernels/byte_rows.h), kept as they are. `source` may be released on return.
  // Several threads may pack rows of which none is the same.
  virtual absl::Status PackWeightRows(const PackedWeights& weights, int64_t first_row,
                                      const TensorView& source) = 0;
  // The inverse, for tests and for the oracle: rows as f32 after conversion or quantisation.
  virtual absl::Status UnpackWeightRows(const PackedWeights& weights, int64_t first_row,
                                        const TensorView& out_f32) = 0;
  virtual int64_t LinearWorkspaceBytes(const LinearSpec& spec, int64_t rows,
                                       DType activation) const = 0;
  virtual absl::Status Linear(const LinearArgs& args, Stream& stream) = 0;
  virtual int64_t GroupedLinearWorkspaceBytes(const LinearSpec& spec, int64_t slots,
                                              int64_t experts, DType activation) const = 0;
  virtual absl::Status GroupedLinear(const GroupedLinearArgs& args, Stream& stream) = 0;
  // By Linear, head after head, unless a device has better.
  virtual absl::Status HeadLinear(const HeadLinearArgs& args, Stream& stream);
  virtual absl::Status ExpertBias(const ExpertBiasArgs& args, Stream& stream) = 0;

  virtual absl::Status RopeTable(const RopeTableArgs& args, Stream& stream) = 0;
  virtual absl::Status Rope(const RopeArgs& args, Stream& stream) = 0;
  virtual absl::Status KvWrite(const KvWriteArgs& args, Stream& stream) = 0;
  // Cache to wire, and wire to cache. Unimplemented where the host reads the device's memory: there
  // the codecs of kvcache/ are faster than a copy.
  virtual absl::Status EncodeKv(const KvWireArgs& args, Stream& stream);
  virtual absl::Status DecodeKv(const KvWireArgs& args, Stream& stream);
  // By the ops above, unless a device has better.
  virtual absl::Status PrepareAttention(const PrepareAttentionArgs& args, Stream& stream);
  virtual int64_t AttentionWorkspaceBytes(const AttentionShape& shape) const = 0;
  virtual absl::Status Attention(const AttentionArgs& args, Stream& stream) = 0;

  virtual absl::Status CausalConv(const CausalConvArgs& args, Stream& stream) = 0;
  virtual absl::Status GatedDelta(const GatedDeltaArgs& args, Stream& stream) = 0;

  virtual absl::Status MoeScores(const MoeScoresArgs& args, Stream& stream) = 0;
  virtual absl::Status MoeRoute(const MoeRouteArgs& args, Stream& stream) = 0;
  virtual absl::Status MoeCombine(const MoeCombineArgs& args, Stream& stream) = 0;

  virtual absl::Status LogSoftmax(const LogSoftmaxArgs& args, Stream& stream) = 0;
  virtual absl::Status TopK(const TopKArgs& args, Stream& stream) = 0;
  virtual int64_t SampleWorkspaceBytes(int64_t rows, int64_t vocabulary) const = 0;
  virtual absl::Status Sample(const SampleArgs& args, Stream& stream) = 0;
};

}  // namespace tessera::kernels
