#include "kernels/cpu/reference/reference_kernels.h"

namespace tessera::kernels::reference {

KernelTable Kernels() {
  return {.embedding = &Embedding,
          .rms_norm = &RmsNorm,
          .layer_norm = &LayerNorm,
          .sum_squares = &SumSquares,
          .scale = &Scale,
          .gather_rows = &GatherRows,
          .feed_tokens = &FeedTokens,
          .add = &Add,
          .activate = &Activate,
          .gated_activate = &GatedActivate,
          .clamped_gate = &ClampedGate,
          .rope_table = &RopeTable,
          .rope = &Rope,
          .kv_write = &KvWrite,
          .attention_workspace_bytes = &AttentionWorkspaceBytes,
          .attention = &Attention,
          .causal_conv = &CausalConv,
          .gated_delta = &GatedDelta,
          .expert_bias = &ExpertBias,
          .moe_scores = &MoeScores,
          .moe_route = &MoeRoute,
          .moe_combine = &MoeCombine,
          .log_softmax = &LogSoftmax,
          .top_k = &TopK,
          .sample_workspace_bytes = &SampleWorkspaceBytes,
          .sample = &Sample,
          .linear = Linears()};
}

}  // namespace tessera::kernels::reference
