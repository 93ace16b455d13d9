// The oracle: every op as the plainest loop that computes it, in double where that is nearer the
// truth.
//
// These define what the ops mean; tests/kernels/conformance holds every other path against them.
// Sums run in index order, on one thread.
#pragma once

#include "kernels/cpu/kernel_table.h"

namespace tessera::kernels::reference {

KernelTable Kernels();
LinearKernels Linears();

void Embedding(const EmbeddingArgs& args, ThreadPool& pool);
void RmsNorm(const NormArgs& args, ThreadPool& pool);
void LayerNorm(const NormArgs& args, ThreadPool& pool);
void SumSquares(const SumSquaresArgs& args, ThreadPool& pool);
void Scale(const ScaleArgs& args, ThreadPool& pool);
void GatherRows(const GatherRowsArgs& args, ThreadPool& pool);
void FeedTokens(const FeedTokensArgs& args, ThreadPool& pool);
void Add(const AddArgs& args, ThreadPool& pool);
void Activate(const ActivationArgs& args, ThreadPool& pool);
void GatedActivate(const GatedActivationArgs& args, ThreadPool& pool);
void ClampedGate(const ClampedGateArgs& args, ThreadPool& pool);
void RopeTable(const RopeTableArgs& args, ThreadPool& pool);
void Rope(const RopeArgs& args, ThreadPool& pool);
void KvWrite(const KvWriteArgs& args, ThreadPool& pool);
int64_t AttentionWorkspaceBytes(const AttentionShape& shape, int threads);
void Attention(const AttentionArgs& args, ThreadPool& pool);
void CausalConv(const CausalConvArgs& args, ThreadPool& pool);
void GatedDelta(const GatedDeltaArgs& args, ThreadPool& pool);
void ExpertBias(const ExpertBiasArgs& args, ThreadPool& pool);
void MoeScores(const MoeScoresArgs& args, ThreadPool& pool);
void MoeRoute(const MoeRouteArgs& args, ThreadPool& pool);
void MoeCombine(const MoeCombineArgs& args, ThreadPool& pool);
void LogSoftmax(const LogSoftmaxArgs& args, ThreadPool& pool);
void TopK(const TopKArgs& args, ThreadPool& pool);
int64_t SampleWorkspaceBytes(int64_t rows, int64_t vocabulary, int threads);
void Sample(const SampleArgs& args, ThreadPool& pool);

}  // namespace tessera::kernels::reference
