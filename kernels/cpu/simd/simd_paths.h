// The vector paths as the rest of the CPU device sees them: what to put into a table of kernels.
// Calling what they hand out needs a processor with that path's instructions.
#pragma once

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/row_scan.h"

namespace tessera::kernels {

namespace avx2 {
void FillKernels(KernelTable& table);
RowScan Scans();
}  // namespace avx2

namespace avx512 {
void FillKernels(KernelTable& table);
RowScan Scans();
// What FillKernels puts in, for what replaces it.
int64_t AttentionWorkspaceBytes(const AttentionShape& shape, int threads);
void Attention(const AttentionArgs& args, ThreadPool& pool);
}  // namespace avx512

}  // namespace tessera::kernels
