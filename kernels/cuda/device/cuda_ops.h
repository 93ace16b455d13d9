// Ops of a CUDA device: checks arguments, then enqueues a kernel.
//
// Thread-safe. Streams must come from the device that owns these ops. Linears choose their kernels
// (cuda_linear.h), and attention does (attention_choice.h); all others are plain ones
// (kernels/cuda/plain): f32 sums in a fixed order, no workspace.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/cuda/device/blas_products.h"
#include "kernels/cuda/device/cuda_health.h"
#include "kernels/cuda/device/cuda_linear.h"
#include "kernels/cuda/device/cuda_stream.h"
#include "kernels/cuda/device/gemm_tuning.h"
#include "kernels/cuda/device/launch_tuner.h"
#include "kernels/cuda/device/slow_kernels.h"
#include "kernels/cuda/device/weight_ring.h"
#include "kernels/cuda/plain/attention_kernels.h"
#include "kernels/cuda/runtime.h"
#include "kernels/ops.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

class CudaOps final : public Ops {
 public:
#ifdef TESSERA_CUDA_EMULATED
  static constexpr std::string_view kPlatformName = "cuda-emulated";
#else
  static constexpr std::string_view kPlatformName = "cuda";
#endif

  // `health` is that of the device, and must outlive this. `capability` is the GPU's: 90 is 9.0.
  // `blas` and `tuner` may be null.
  CudaOps(CudaHealth* health, int device_index, const CudaLinear::Gpu& gpu,
          std::unique_ptr<BlasProducts> blas, std::unique_ptr<LaunchTuner> tuner)
      : health_(health),
        capability_(gpu.capability),
        tuner_(std::move(tuner)),
        blas_(std::move(blas)),
        slow_(health->device()),
        tuning_(tuner_.get()),
        linear_(gpu, blas_.get(), &slow_, &tuning_),
        rings_(device_index, health) {
    if (blas_ != nullptr) blas_->set_tuner(tuner_.get());
  }

  // What was measured, in words; empty: nothing.
  std::string DescribeTuning() const { return tuner_ == nullptr ? "" : tuner_->Describe(); }

  std::string name() const override { return std::string(kPlatformName); }
  // Turing has no arithmetic in bf16.
  bool ComputesIn(DType dtype) const override { return dtype != DType::kBF16 || capability_ >= 80; }
  DType LinearInputs(const LinearSpec& spec, int64_t rows, DType products) const override;
  bool FusesSiluGate(const LinearSpec& spec, int64_t rows, DType products) const override {
    return linear_.FusesSiluGate(spec, rows, products);
  }
  bool ComputesCodes(const LinearSpec& spec) const override;

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
  bool ComputesUnpacked(const LinearSpec&, const UnpackedRows&) const override { return false; }
  absl::Status PackWeightRows(const PackedWeights& weights, int64_t first_row,
                              const TensorView& source) override;
  absl::Status UnpackWeightRows(const PackedWeights& weights, int64_t first_row,
                                const TensorView& out_f32) override;
  int64_t LinearWorkspaceBytes(const LinearSpec& spec, int64_t rows,
                               DType activation) const override {
    return linear_.WorkspaceBytes(spec, rows, activation);
  }
  absl::Status Linear(const LinearArgs& args, Stream& stream) override;
  int64_t GroupedLinearWorkspaceBytes(const LinearSpec& spec, int64_t slots, int64_t,
                                      DType) const override {
    return linear_.GroupedWorkspaceBytes(spec, slots);
  }
  absl::Status GroupedLinear(const GroupedLinearArgs& args, Stream& stream) override;
  absl::Status HeadLinear(const HeadLinearArgs& args, Stream& stream) override;

  absl::Status RopeTable(const RopeTableArgs& args, Stream& stream) override;
  absl::Status Rope(const RopeArgs& args, Stream& stream) override;
  absl::Status KvWrite(const KvWriteArgs& args, Stream& stream) override;
  absl::Status EncodeKv(const KvWireArgs& args, Stream& stream) override;
  absl::Status DecodeKv(const KvWireArgs& args, Stream& stream) override;
  absl::Status PrepareAttention(const PrepareAttentionArgs& args, Stream& stream) override;
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
  int64_t SampleWorkspaceBytes(int64_t, int64_t) const override { return 0; }
  absl::Status Sample(const SampleArgs& args, Stream& stream) override;

 private:
  // The stream as this device's, or null with `status` set.
  CudaStream* OwnStream(Stream& stream, absl::Status& status) const;
  template <typename Params>
  absl::Status Enqueue(const char* op, cudaError_t (*launch)(const Params&, cudaStream_t),
                       const Params& params, Stream& stream);
  // Over keys and values in 8 bits, which TakesCodeAttention takes.
  absl::Status AttendCodes(const AttentionArgs& args, const AttentionParams& params,
                           Stream& stream);
  absl::Status Norm(const char* op, const NormArgs& args, bool subtract_mean, Stream& stream);

  CudaHealth* const health_;
  const int capability_;
  const std::unique_ptr<LaunchTuner> tuner_;
  const std::unique_ptr<BlasProducts> blas_;
  SlowKernels slow_;
  GemmTuning tuning_;
  const CudaLinear linear_;
  WeightRings rings_;
};

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
