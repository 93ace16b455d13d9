#include "kernels/cpu/device/cpu_ops.h"

#include <algorithm>
#include <mutex>

#include "kernels/cpu/device/kernel_tables.h"
#include "kernels/ops_check.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kPackTaskRows = 64;

}  // namespace

CpuOps::CpuOps(Isa isa, ThreadPool* pool) : isa_(isa), pool_(pool), kernels_(KernelsFor(isa)) {}

std::string CpuOps::name() const { return std::string(Name(isa_)); }

template <typename Args>
absl::Status CpuOps::Enqueue(const absl::Status& check, std::initializer_list<DType> types,
                             Kernel<Args> kernel, const Args& args, Stream& stream) {
  if (!check.ok()) return check;
  for (const DType type : types) {
    if (!Takes(type)) return NoFloat16();
  }
  if (stream.owner() != pool_) {
    return absl::InvalidArgumentError(
        StrCat("CPU ops (", name(), "): the stream belongs to another device"));
  }
  static_cast<CpuStream&>(stream).Enqueue(kernel, args);
  return absl::OkStatus();
}

absl::Status CpuOps::NoFloat16() const {
  return absl::UnimplementedError(
      StrCat("CPU ops (", name(), ") compute in float32 and bfloat16, not in float16"));
}

absl::Status CpuOps::Embedding(const EmbeddingArgs& args, Stream& stream) {
  const auto kernel =
      args.packed != nullptr ? kernels_.linear.packed_embedding : kernels_.embedding;
  return Enqueue(CheckEmbedding(args), {args.out.dtype}, kernel, args, stream);
}

absl::Status CpuOps::RmsNorm(const NormArgs& args, Stream& stream) {
  return Enqueue(CheckRmsNorm(args), {args.in.dtype}, kernels_.rms_norm, args, stream);
}

absl::Status CpuOps::LayerNorm(const NormArgs& args, Stream& stream) {
  return Enqueue(CheckLayerNorm(args), {args.in.dtype}, kernels_.layer_norm, args, stream);
}

absl::Status CpuOps::SumSquares(const SumSquaresArgs& args, Stream& stream) {
  return Enqueue(CheckSumSquares(args), {args.in.dtype}, kernels_.sum_squares, args, stream);
}

absl::Status CpuOps::Scale(const ScaleArgs& args, Stream& stream) {
  return Enqueue(CheckScale(args), {args.rows.dtype}, kernels_.scale, args, stream);
}

absl::Status CpuOps::GatherRows(const GatherRowsArgs& args, Stream& stream) {
  return Enqueue(CheckGatherRows(args), {args.in.dtype}, kernels_.gather_rows, args, stream);
}

absl::Status CpuOps::FeedTokens(const FeedTokensArgs& args, Stream& stream) {
  return Enqueue(CheckFeedTokens(args), {}, kernels_.feed_tokens, args, stream);
}

absl::Status CpuOps::Add(const AddArgs& args, Stream& stream) {
  return Enqueue(CheckAdd(args), {args.in.dtype}, kernels_.add, args, stream);
}

absl::Status CpuOps::Activate(const ActivationArgs& args, Stream& stream) {
  return Enqueue(CheckActivate(args), {args.in.dtype}, kernels_.activate, args, stream);
}

absl::Status CpuOps::GatedActivate(const GatedActivationArgs& args, Stream& stream) {
  return Enqueue(CheckGatedActivate(args), {args.out.dtype}, kernels_.gated_activate, args, stream);
}

absl::Status CpuOps::ClampedGate(const ClampedGateArgs& args, Stream& stream) {
  return Enqueue(CheckClampedGate(args), {args.out.dtype}, kernels_.clamped_gate, args, stream);
}

int64_t CpuOps::PackedWeightBytes(const LinearSpec& spec) const {
  if (!Takes(spec.weight_dtype)) return 0;
  return kernels_.linear.packed_weight_bytes(spec);
}

bool CpuOps::ComputesUnpacked(const LinearSpec& spec, const UnpackedRows& rows) const {
  return kernels_.linear.computes_unpacked(spec, rows);
}

absl::Status CpuOps::PackWeightRows(const PackedWeights& weights, int64_t first_row,
                                    const TensorView& source) {
  absl::Status check = CheckPackWeightRows(weights, first_row, source);
  if (check.ok() && !Takes(weights.spec.weight_dtype)) check = NoFloat16();
  if (!check.ok()) return check;
  // Whole panels and more, so that no two threads write a cache line.
  const int64_t end = first_row + source.rows(), first_task = first_row / kPackTaskRows;
  const int64_t tasks = (end + kPackTaskRows - 1) / kPackTaskRows - first_task;
  std::mutex mutex;  // over `check` and the row that it is about: the first one is reported
  int64_t failed_row = end;
  pool_->ParallelFor(tasks, [&](int64_t task, int) {
    const int64_t begin = std::max(first_row, (first_task + task) * kPackTaskRows);
    const int64_t stop = std::min(end, (first_task + task + 1) * kPackTaskRows);
    TensorView rows = source.Rows(stop - begin);
    rows.data += (begin - first_row) * source.row_stride * SizeInBytes(source.dtype);
    absl::Status packed = kernels_.linear.pack_weight_rows(weights, begin, rows);
    if (packed.ok()) return;
    const std::lock_guard<std::mutex> lock(mutex);
    if (begin >= failed_row) return;
    failed_row = begin;
    check = packed;
  });
  return check;
}

absl::Status CpuOps::UnpackWeightRows(const PackedWeights& weights, int64_t first_row,
                                      const TensorView& out_f32) {
  absl::Status check = CheckUnpackWeightRows(weights, first_row, out_f32);
  if (check.ok() && !Takes(weights.spec.weight_dtype)) check = NoFloat16();
  if (check.ok()) kernels_.linear.unpack_weight_rows(weights, first_row, out_f32);
  return check;
}

int64_t CpuOps::LinearWorkspaceBytes(const LinearSpec& spec, int64_t rows, DType activation) const {
  return kernels_.linear.linear_workspace_bytes(spec, rows, activation, pool_->threads());
}

absl::Status CpuOps::Linear(const LinearArgs& args, Stream& stream) {
  const int64_t workspace_bytes =
      args.weights == nullptr
          ? 0
          : LinearWorkspaceBytes(args.weights->spec, args.in.rows(), args.in.dtype);
  const DType weight = args.weights == nullptr ? DType::kF32 : args.weights->spec.weight_dtype;
  return Enqueue(CheckLinear(args, workspace_bytes), {args.in.dtype, args.out.dtype, weight},
                 kernels_.linear.linear, args, stream);
}

int64_t CpuOps::GroupedLinearWorkspaceBytes(const LinearSpec& spec, int64_t slots, int64_t experts,
                                            DType activation) const {
  return kernels_.linear.grouped_workspace_bytes(spec, slots, experts, activation,
                                                 pool_->threads());
}

absl::Status CpuOps::GroupedLinear(const GroupedLinearArgs& args, Stream& stream) {
  const auto experts = static_cast<int64_t>(args.experts.size());
  const int64_t workspace_bytes =
      experts == 0 ? 0
                   : GroupedLinearWorkspaceBytes(args.experts[0].spec, args.out.rows(), experts,
                                                 args.in.dtype);
  const DType weight = experts == 0 ? DType::kF32 : args.experts[0].spec.weight_dtype;
  return Enqueue(CheckGroupedLinear(args, workspace_bytes), {args.in.dtype, args.out.dtype, weight},
                 kernels_.linear.grouped_linear, args, stream);
}

absl::Status CpuOps::RopeTable(const RopeTableArgs& args, Stream& stream) {
  return Enqueue(CheckRopeTable(args), {}, kernels_.rope_table, args, stream);
}

absl::Status CpuOps::Rope(const RopeArgs& args, Stream& stream) {
  return Enqueue(CheckRope(args), {args.q.dtype}, kernels_.rope, args, stream);
}

absl::Status CpuOps::KvWrite(const KvWriteArgs& args, Stream& stream) {
  return Enqueue(CheckKvWrite(args), {args.k.dtype, args.cache.keys.dtype}, kernels_.kv_write, args,
                 stream);
}

int64_t CpuOps::AttentionWorkspaceBytes(const AttentionShape& shape) const {
  return kernels_.attention_workspace_bytes(shape, pool_->threads());
}

absl::Status CpuOps::Attention(const AttentionArgs& args, Stream& stream) {
  absl::Status check = CheckAttention(args, 0);
  if (check.ok()) check = CheckAttention(args, AttentionWorkspaceBytes(ShapeOf(args)));
  return Enqueue(check, {args.q.dtype, args.cache.keys.dtype}, kernels_.attention, args, stream);
}

absl::Status CpuOps::CausalConv(const CausalConvArgs& args, Stream& stream) {
  return Enqueue(CheckCausalConv(args), {}, kernels_.causal_conv, args, stream);
}

absl::Status CpuOps::GatedDelta(const GatedDeltaArgs& args, Stream& stream) {
  return Enqueue(CheckGatedDelta(args), {}, kernels_.gated_delta, args, stream);
}

absl::Status CpuOps::ExpertBias(const ExpertBiasArgs& args, Stream& stream) {
  return Enqueue(CheckExpertBias(args), {args.out.dtype}, kernels_.expert_bias, args, stream);
}

absl::Status CpuOps::MoeScores(const MoeScoresArgs& args, Stream& stream) {
  return Enqueue(CheckMoeScores(args), {}, kernels_.moe_scores, args, stream);
}

absl::Status CpuOps::MoeRoute(const MoeRouteArgs& args, Stream& stream) {
  return Enqueue(CheckMoeRoute(args), {}, kernels_.moe_route, args, stream);
}

absl::Status CpuOps::MoeCombine(const MoeCombineArgs& args, Stream& stream) {
  return Enqueue(CheckMoeCombine(args), {args.in.dtype}, kernels_.moe_combine, args, stream);
}

absl::Status CpuOps::LogSoftmax(const LogSoftmaxArgs& args, Stream& stream) {
  return Enqueue(CheckLogSoftmax(args), {}, kernels_.log_softmax, args, stream);
}

absl::Status CpuOps::TopK(const TopKArgs& args, Stream& stream) {
  return Enqueue(CheckTopK(args), {}, kernels_.top_k, args, stream);
}

int64_t CpuOps::SampleWorkspaceBytes(int64_t rows, int64_t vocabulary) const {
  return kernels_.sample_workspace_bytes(rows, vocabulary, pool_->threads());
}

absl::Status CpuOps::Sample(const SampleArgs& args, Stream& stream) {
  const int64_t workspace_bytes = SampleWorkspaceBytes(args.logits.rows(), args.logits.shape[1]);
  return Enqueue(CheckSample(args, workspace_bytes), {}, kernels_.sample, args, stream);
}

}  // namespace tessera::kernels
