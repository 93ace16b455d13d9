// Ops of the CPU device: checks arguments, then enqueues the kernel of the chosen path.
//
// Thread-safe (it holds nothing that changes). Streams must come from the device that owns these
// ops.
#pragma once

#include <string>

#include "kernels/cpu/cpu_stream.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/ops.h"

namespace tessera::kernels {

class CpuOps final : public Ops {
 public:
  // `pool` must outlive this. The processor must support `isa`.
  CpuOps(Isa isa, ThreadPool* pool);

  std::string name() const override;

  absl::Status Embedding(const EmbeddingArgs& args, Stream& stream) override;
  absl::Status RmsNorm(const NormArgs& args, Stream& stream) override;
  absl::Status LayerNorm(const NormArgs& args, Stream& stream) override;
  absl::Status SumSquares(const SumSquaresArgs& args, Stream& stream) override;
  absl::Status Scale(const ScaleArgs& args, Stream& stream) override;
  absl::Status GatherRows(const GatherRowsArgs& args, Stream& stream) override;
  absl::Status FeedTokens(const FeedTokensArgs& args, Stream& stream) override;
  absl::Status Add(const AddArgs& args, Stream& stream) override;
  absl::Status Activate(const ActivationArgs& args, Stream& stream) override;
  absl::Status GatedActivate(const GatedActivationArgs& args, Stream& stream) override;
  absl::Status ClampedGate(const ClampedGateArgs& args, Stream& stream) override;

  int64_t PackedWeightBytes(const LinearSpec& spec) const override;
  bool ComputesUnpacked(const LinearSpec& spec, const UnpackedRows& rows) const override;
  absl::Status PackWeightRows(const PackedWeights& weights, int64_t first_row,
                              const TensorView& source) override;
  absl::Status UnpackWeightRows(const PackedWeights& weights, int64_t first_row,
                                const TensorView& out_f32) override;
  int64_t LinearWorkspaceBytes(const LinearSpec& spec, int64_t rows,
                               DType activation) const override;
  absl::Status Linear(const LinearArgs& args, Stream& stream) override;
  int64_t GroupedLinearWorkspaceBytes(const LinearSpec& spec, int64_t slots, int64_t experts,
                                      DType activation) const override;
  absl::Status GroupedLinear(const GroupedLinearArgs& args, Stream& stream) override;

  absl::Status RopeTable(const RopeTableArgs& args, Stream& stream) override;
  absl::Status Rope(const RopeArgs& args, Stream& stream) override;
  absl::Status KvWrite(const KvWriteArgs& args, Stream& stream) override;
  int64_t AttentionWorkspaceBytes(const AttentionShape& shape) const override;
  absl::Status Attention(const AttentionArgs& args, Stream& stream) override;

  absl::Status CausalConv(const CausalConvArgs& args, Stream& stream) override;
  absl::Status GatedDelta(const GatedDeltaArgs& args, Stream& stream) override;

  absl::Status ExpertBias(const ExpertBiasArgs& args, Stream& stream) override;
  absl::Status MoeScores(const MoeScoresArgs& args, Stream& stream) override;
  absl::Status MoeRoute(const MoeRouteArgs& args, Stream& stream) override;
  absl::Status MoeCombine(const MoeCombineArgs& args, Stream& stream) override;

  absl::Status LogSoftmax(const LogSoftmaxArgs& args, Stream& stream) override;
  absl::Status TopK(const TopKArgs& args, Stream& stream) override;
  int64_t SampleWorkspaceBytes(int64_t rows, int64_t vocabulary) const override;
  absl::Status Sample(const SampleArgs& args, Stream& stream) override;

 private:
  template <typename Args>
  absl::Status Enqueue(const absl::Status& check, std::initializer_list<DType> types,
                       Kernel<Args> kernel, const Args& args, Stream& stream);

  // The reference takes f16, as what other devices are held against.
  bool Takes(DType dtype) const { return dtype != DType::kF16 || isa_ == Isa::kReference; }
  absl::Status NoFloat16() const;

  const Isa isa_;
  ThreadPool* const pool_;
  const KernelTable kernels_;
};

}  // namespace tessera::kernels
