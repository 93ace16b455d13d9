// Whether the arguments of an op fit together: shapes, element types, what may be strided or empty.
//
// One check per op of ops.h, shared by every device. Pure functions of host data (they read no
// tensor); a passing check allocates nothing. The error is InvalidArgument, naming op, tensor, what
// it is and what it must be.
#pragma once

#include "absl/status/status.h"
#include "kernels/ops.h"

namespace tessera::kernels {

absl::Status CheckEmbedding(const EmbeddingArgs& args);
// `narrows`, here and below: the device may write outputs of 16 bits where inputs are f32.
absl::Status CheckRmsNorm(const NormArgs& args, bool narrows = false);
absl::Status CheckLayerNorm(const NormArgs& args, bool narrows = false);
absl::Status CheckSumSquares(const SumSquaresArgs& args);
absl::Status CheckScale(const ScaleArgs& args);
absl::Status CheckGatherRows(const GatherRowsArgs& args);
absl::Status CheckFeedTokens(const FeedTokensArgs& args);
absl::Status CheckAdd(const AddArgs& args);
absl::Status CheckActivate(const ActivationArgs& args, bool narrows = false);
absl::Status CheckGatedActivate(const GatedActivationArgs& args, bool narrows = false);
absl::Status CheckClampedGate(const ClampedGateArgs& args, bool narrows = false);

// For PackWeightRows (f32|f16|bf16, of i4 weights bytes) and UnpackWeightRows (f32).
absl::Status CheckPackWeightRows(const PackedWeights& weights, int64_t first_row,
                                 const TensorView& source);
absl::Status CheckUnpackWeightRows(const PackedWeights& weights, int64_t first_row,
                                   const TensorView& out_f32);
// `fuses`: the device takes silu_gate for the call.
absl::Status CheckLinear(const LinearArgs& args, int64_t workspace_bytes, bool fuses = false);
absl::Status CheckGroupedLinear(const GroupedLinearArgs& args, int64_t workspace_bytes);

absl::Status CheckRopeTable(const RopeTableArgs& args);
absl::Status CheckRope(const RopeArgs& args);
absl::Status CheckKvWrite(const KvWriteArgs& args);
// `decodes`: the elements that come may have another type than the cache's.
absl::Status CheckKvCode(const char* op, const KvWireArgs& args, bool decodes);
absl::Status CheckPrepareAttention(const PrepareAttentionArgs& args);
absl::Status CheckAttention(const AttentionArgs& args, int64_t workspace_bytes);

absl::Status CheckCausalConv(const CausalConvArgs& args);
absl::Status CheckGatedDelta(const GatedDeltaArgs& args);

absl::Status CheckExpertBias(const ExpertBiasArgs& args);
absl::Status CheckMoeScores(const MoeScoresArgs& args);
absl::Status CheckMoeRoute(const MoeRouteArgs& args);
absl::Status CheckMoeCombine(const MoeCombineArgs& args);

absl::Status CheckLogSoftmax(const LogSoftmaxArgs& args);
absl::Status CheckTopK(const TopKArgs& args);
absl::Status CheckSample(const SampleArgs& args, int64_t workspace_bytes);

// The shape that an attention call's workspace must be good for.
AttentionShape ShapeOf(const AttentionArgs& args);

}  // namespace tessera::kernels
