// The vector kernels of one path, for this folder's sources, which the build compiles once per path
// with TESSERA_SIMD_PATH defined to its namespace.
#pragma once

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/row_scan.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {

void Embedding(const EmbeddingArgs& args, ThreadPool& pool);
void RmsNorm(const NormArgs& args, ThreadPool& pool);
void LayerNorm(const NormArgs& args, ThreadPool& pool);
void SumSquares(const SumSquaresArgs& args, ThreadPool& pool);
void Scale(const ScaleArgs& args, ThreadPool& pool);
void GatherRows(const GatherRowsArgs& args, ThreadPool& pool);
void Add(const AddArgs& args, ThreadPool& pool);
void Activate(const ActivationArgs& args, ThreadPool& pool);
void GatedActivate(const GatedActivationArgs& args, ThreadPool& pool);
void ClampedGate(const ClampedGateArgs& args, ThreadPool& pool);
void Rope(const RopeArgs& args, ThreadPool& pool);
void KvWrite(const KvWriteArgs& args, ThreadPool& pool);
int64_t AttentionWorkspaceBytes(const AttentionShape& shape, int threads);
void Attention(const AttentionArgs& args, ThreadPool& pool);
void CausalConv(const CausalConvArgs& args, ThreadPool& pool);
void GatedDelta(const GatedDeltaArgs& args, ThreadPool& pool);
void ExpertBias(const ExpertBiasArgs& args, ThreadPool& pool);
void MoeCombine(const MoeCombineArgs& args, ThreadPool& pool);
void LogSoftmax(const LogSoftmaxArgs& args, ThreadPool& pool);
RowScan Scans();

}  // namespace tessera::kernels::TESSERA_SIMD_PATH
