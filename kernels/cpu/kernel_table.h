// One kernel path: a function for each op, for arguments that ops_check has passed.
//
// The functions run on the stream's thread and spread their work over the pool; they neither
// allocate nor fail. reference/, simd/ (compiled once per instruction set) and linear/ each fill in
// their part.
#pragma once

#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace tessera::kernels {

template <typename Args>
using Kernel = void (*)(const Args& args, ThreadPool& pool);

struct LinearKernels {
  int64_t (*packed_weight_bytes)(const LinearSpec& spec);
  bool (*computes_unpacked)(const LinearSpec& spec, const UnpackedRows& rows);
  // InvalidArgument where a weight is not finite and is to be quantised.
  absl::Status (*pack_weight_rows)(const PackedWeights& weights, int64_t first_row,
                                   const TensorView& source);
  void (*unpack_weight_rows)(const PackedWeights& weights, int64_t first_row,
                             const TensorView& out_f32);
  int64_t (*linear_workspace_bytes)(const LinearSpec& spec, int64_t rows, DType activation,
                                    int threads);
  int64_t (*grouped_workspace_bytes)(const LinearSpec& spec, int64_t slots, int64_t experts,
                                     DType activation, int threads);
  Kernel<LinearArgs> linear;
  Kernel<GroupedLinearArgs> grouped_linear;
  Kernel<EmbeddingArgs> packed_embedding;  // EmbeddingArgs::packed is given
};

struct KernelTable {
  Kernel<EmbeddingArgs> embedding;
  Kernel<NormArgs> rms_norm;
  Kernel<NormArgs> layer_norm;
  Kernel<SumSquaresArgs> sum_squares;
  Kernel<ScaleArgs> scale;
  Kernel<GatherRowsArgs> gather_rows;
  Kernel<FeedTokensArgs> feed_tokens;
  Kernel<AddArgs> add;
  Kernel<ActivationArgs> activate;
  Kernel<GatedActivationArgs> gated_activate;
  Kernel<ClampedGateArgs> clamped_gate;
  Kernel<RopeTableArgs> rope_table;
  Kernel<RopeArgs> rope;
  Kernel<KvWriteArgs> kv_write;
  int64_t (*attention_workspace_bytes)(const AttentionShape& shape, int threads);
  Kernel<AttentionArgs> attention;
  Kernel<CausalConvArgs> causal_conv;
  Kernel<GatedDeltaArgs> gated_delta;
  Kernel<ExpertBiasArgs> expert_bias;
  Kernel<MoeScoresArgs> moe_scores;
  Kernel<MoeRouteArgs> moe_route;
  Kernel<MoeCombineArgs> moe_combine;
  Kernel<LogSoftmaxArgs> log_softmax;
  Kernel<TopKArgs> top_k;
  int64_t (*sample_workspace_bytes)(int64_t rows, int64_t vocabulary, int threads);
  Kernel<SampleArgs> sample;
  LinearKernels linear;
};

}  // namespace tessera::kernels
