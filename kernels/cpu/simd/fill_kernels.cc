#include "kernels/cpu/simd/simd_kernels.h"
#include "kernels/cpu/simd/simd_paths.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {

void FillKernels(KernelTable& table) {
  table.embedding = &Embedding;
  table.rms_norm = &RmsNorm;
  table.layer_norm = &LayerNorm;
  table.sum_squares = &SumSquares;
  table.scale = &Scale;
  table.gather_rows = &GatherRows;
  table.add = &Add;
  table.activate = &Activate;
  table.gated_activate = &GatedActivate;
  table.clamped_gate = &ClampedGate;
  table.rope = &Rope;
  table.kv_write = &KvWrite;
  table.attention_workspace_bytes = &AttentionWorkspaceBytes;
  table.attention = &Attention;
  table.causal_conv = &CausalConv;
  table.gated_delta = &GatedDelta;
  table.expert_bias = &ExpertBias;
  table.moe_combine = &MoeCombine;
  table.log_softmax = &LogSoftmax;
}

}  // namespace tessera::kernels::TESSERA_SIMD_PATH
