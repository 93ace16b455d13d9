// The ops of another device, to derive from by what changes or watches a few of them.
// Thread rule: as the ops themselves. Ownership: borrows them.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/ops.h"

namespace tessera {

class ForwardingOps : public kernels::Ops {
 public:
  using Stream = kernels::Stream;

  explicit ForwardingOps(kernels::Ops* ops) : ops_(ops) {}

  std::string name() const override { return ops_->name(); }

  absl::Status Embedding(const kernels::EmbeddingArgs& args, Stream& stream) override {
    return ops_->Embedding(args, stream);
  }
  absl::Status RmsNorm(const kernels::NormArgs& args, Stream& stream) override {
    return ops_->RmsNorm(args, stream);
  }
  absl::Status LayerNorm(const kernels::NormArgs& args, Stream& stream) override {
    return ops_->LayerNorm(args, stream);
  }
  absl::Status SumSquares(const kernels::SumSquaresArgs& args, Stream& stream) override {
    return ops_->SumSquares(args, stream);
  }
  absl::Status Scale(const kernels::ScaleArgs& args, Stream& stream) override {
    return ops_->Scale(args, stream);
  }
  absl::Status GatherRows(const kernels::GatherRowsArgs& args, Stream& stream) override {
    return ops_->GatherRows(args, stream);
  }
  absl::Status FeedTokens(const kernels::FeedTokensArgs& args, Stream& stream) override {
    return ops_->FeedTokens(args, stream);
  }
  absl::Status Add(const kernels::AddArgs& args, Stream& stream) override {
    return ops_->Add(args, stream);
  }
  absl::Status Activate(const kernels::ActivationArgs& args, Stream& stream) override {
    return ops_->Activate(args, stream);
  }
  absl::Status GatedActivate(const kernels::GatedActivationArgs& args, Stream& stream) override {
    return ops_->GatedActivate(args, stream);
  }

  int64_t PackedWeightBytes(const kernels::LinearSpec& spec) const override {
    return ops_->PackedWeightBytes(spec);
  }
  bool ComputesUnpacked(const kernels::LinearSpec& spec,
                        const kernels::UnpackedRows& rows) const override {
    return ops_->ComputesUnpacked(spec, rows);
  }
  absl::Status PackWeightRows(const kernels::PackedWeights& weights, int64_t first_row,
                              const kernels::TensorView& source) override {
    return ops_->PackWeightRows(weights, first_row, source);
  }
  absl::Status UnpackWeightRows(const kernels::PackedWeights& weights, int64_t first_row,
                                const kernels::TensorView& out_f32) override {
    return ops_->UnpackWeightRows(weights, first_row, out_f32);
  }
  int64_t LinearWorkspaceBytes(const kernels::LinearSpec& spec, int64_t rows,
                               kernels::DType activation) const override {
    return ops_->LinearWorkspaceBytes(spec, rows, activation);
  }
  absl::Status Linear(const kernels::LinearArgs& args, Stream& stream) override {
    return ops_->Linear(args, stream);
  }
  int64_t GroupedLinearWorkspaceBytes(const kernels::LinearSpec& spec, int64_t slots,
                                      int64_t experts, kernels::DType activation) const override {
    return ops_->GroupedLinearWorkspaceBytes(spec, slots, experts, activation);
  }
  absl::Status GroupedLinear(const kernels::GroupedLinearArgs& args, Stream& stream) override {
    return ops_->GroupedLinear(args, stream);
  }

  absl::Status RopeTable(const kernels::RopeTableArgs& args, Stream& stream) override {
    return ops_->RopeTable(args, stream);
  }
  absl::Status Rope(const kernels::RopeArgs& args, Stream& stream) override {
    return ops_->Rope(args, stream);
  }
  absl::Status KvWrite(const kernels::KvWriteArgs& args, Stream& stream) override {
    return ops_->KvWrite(args, stream);
  }
  int64_t AttentionWorkspaceBytes(const kernels::AttentionShape& shape) const override {
    return ops_->AttentionWorkspaceBytes(shape);
  }
  absl::Status Attention(const kernels::AttentionArgs& args, Stream& stream) override {
    return ops_->Attention(args, stream);
  }

  absl::Status ClampedGate(const kernels::ClampedGateArgs& args, Stream& stream) override {
    return ops_->ClampedGate(args, stream);
  }
  absl::Status CausalConv(const kernels::CausalConvArgs& args, Stream& stream) override {
    return ops_->CausalConv(args, stream);
  }
  absl::Status GatedDelta(const kernels::GatedDeltaArgs& args, Stream& stream) override {
    return ops_->GatedDelta(args, stream);
  }
  absl::Status ExpertBias(const kernels::ExpertBiasArgs& args, Stream& stream) override {
    return ops_->ExpertBias(args, stream);
  }
  absl::Status MoeScores(const kernels::MoeScoresArgs& args, Stream& stream) override {
    return ops_->MoeScores(args, stream);
  }
  absl::Status MoeRoute(const kernels::MoeRouteArgs& args, Stream& stream) override {
    return ops_->MoeRoute(args, stream);
  }
  absl::Status MoeCombine(const kernels::MoeCombineArgs& args, Stream& stream) override {
    return ops_->MoeCombine(args, stream);
  }

  absl::Status LogSoftmax(const kernels::LogSoftmaxArgs& args, Stream& stream) override {
    return ops_->LogSoftmax(args, stream);
  }
  absl::Status TopK(const kernels::TopKArgs& args, Stream& stream) override {
    return ops_->TopK(args, stream);
  }
  int64_t SampleWorkspaceBytes(int64_t rows, int64_t vocabulary) const override {
    return ops_->SampleWorkspaceBytes(rows, vocabulary);
  }
  absl::Status Sample(const kernels::SampleArgs& args, Stream& stream) override {
    return ops_->Sample(args, stream);
  }

 protected:
  kernels::Ops* ops() const { return ops_; }

 private:
  kernels::Ops* const ops_;
};

}  // namespace tessera
