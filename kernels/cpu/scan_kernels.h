// Ops that choose among the values of a row (sampling, top-k, expert routing): scalar code for
// every processor around the vector loops of a RowScan.
//
// They mean what kernels/cpu/reference says. Weights of the candidates left are computed in double
// as there, so a token can differ from the reference's only where the random number falls within
// about 1e-6 (relative) of a boundary between two tokens.
#pragma once

#include "kernels/cpu/row_scan.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace tessera::kernels {

int64_t ScanSampleWorkspaceBytes(int64_t rows, int64_t vocabulary, int threads);
void ScanSample(const RowScan& scan, const SampleArgs& args, ThreadPool& pool);
void ScanTopK(const RowScan& scan, const TopKArgs& args, ThreadPool& pool);
void ScanMoeRoute(const RowScan& scan, const MoeRouteArgs& args, ThreadPool& pool);

}  // namespace tessera::kernels
