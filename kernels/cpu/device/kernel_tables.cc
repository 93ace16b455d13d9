#include "kernels/cpu/device/kernel_tables.h"

#include <algorithm>

#include "kernels/cpu/linear/packed_linear.h"
#include "kernels/cpu/packed_embedding.h"
#include "kernels/cpu/reference/reference_kernels.h"
#include "kernels/cpu/scan_kernels.h"
#include "kernels/cpu/simd/dot_paths.h"
#include "kernels/cpu/simd/simd_paths.h"

namespace tessera::kernels {
namespace {

// The packed linear of one path as plain functions.
template <Isa isa>
struct Packed {
  static int64_t PackedWeightBytes(const LinearSpec& spec) { return cpu::PackedBytes(isa, spec); }
  static bool ComputesUnpacked(const LinearSpec& spec, const UnpackedRows& rows) {
    return cpu::ComputesUnpacked(spec, rows);
  }
  static absl::Status PackWeightRows(const PackedWeights& weights, int64_t first_row,
                                     const TensorView& source) {
    return cpu::PackRows(isa, weights, first_row, source);
  }
  static void UnpackWeightRows(const PackedWeights& weights, int64_t first_row,
                               const TensorView& out_f32) {
    cpu::UnpackRows(isa, weights, first_row, out_f32);
  }
  static int64_t LinearWorkspaceBytes(const LinearSpec& spec, int64_t rows, DType, int threads) {
    return cpu::WorkspaceBytes(isa, spec, rows, threads);
  }
  static int64_t GroupedWorkspaceBytes(const LinearSpec& spec, int64_t slots, int64_t, DType,
                                       int threads) {
    return cpu::WorkspaceBytes(isa, spec, slots, threads);
  }
  static void Linear(const LinearArgs& args, ThreadPool& pool) { cpu::RunLinear(isa, args, pool); }
  static void GroupedLinear(const GroupedLinearArgs& args, ThreadPool& pool) {
    cpu::RunGroupedLinear(isa, args, pool);
  }
};

template <Isa isa>
constexpr LinearKernels PackedLinears() {
  return {.packed_weight_bytes = &Packed<isa>::PackedWeightBytes,
          .computes_unpacked = &Packed<isa>::ComputesUnpacked,
          .pack_weight_rows = &Packed<isa>::PackWeightRows,
          .unpack_weight_rows = &Packed<isa>::UnpackWeightRows,
          .linear_workspace_bytes = &Packed<isa>::LinearWorkspaceBytes,
          .grouped_workspace_bytes = &Packed<isa>::GroupedWorkspaceBytes,
          .linear = &Packed<isa>::Linear,
          .grouped_linear = &Packed<isa>::GroupedLinear,
          .packed_embedding = &PackedEmbedding<&Packed<isa>::UnpackWeightRows>};
}

// The ops around a path's row scans.
template <RowScan (*scans)()>
struct Scanned {
  static void Sample(const SampleArgs& args, ThreadPool& pool) { ScanSample(scans(), args, pool); }
  static void TopK(const TopKArgs& args, ThreadPool& pool) { ScanTopK(scans(), args, pool); }
  static void MoeRoute(const MoeRouteArgs& args, ThreadPool& pool) {
    ScanMoeRoute(scans(), args, pool);
  }
};

// A whole path. The rope table stays the reference's: once a step, and in double.
template <Isa isa, void (*fill)(KernelTable&), RowScan (*scans)()>
KernelTable Path() {
  KernelTable table = reference::Kernels();
  fill(table);
  table.moe_route = &Scanned<scans>::MoeRoute;
  table.top_k = &Scanned<scans>::TopK;
  table.sample_workspace_bytes = &ScanSampleWorkspaceBytes;
  table.sample = &Scanned<scans>::Sample;
  table.linear = PackedLinears<isa>();
  return table;
}

using AttentionWorkspace = int64_t (*)(const AttentionShape&, int);

// Attention in pairs of bf16 where the call allows it, else as the path has it.
template <AttentionWorkspace paired_workspace, Kernel<AttentionArgs> paired>
struct MaybePaired {
  static int64_t WorkspaceBytes(const AttentionShape& shape, int threads) {
    return std::max(avx512::AttentionWorkspaceBytes(shape, threads),
                    paired_workspace(shape, threads));
  }
  static void Attention(const AttentionArgs& args, ThreadPool& pool) {
    const DType cached = args.cache.keys.dtype;
    const bool pairs = args.products == DType::kBF16 &&
                       (cached == DType::kBF16 || HasKvScales(cached)) && args.soft_cap == 0;
    (pairs ? paired : &avx512::Attention)(args, pool);
  }
  static void FillKernels(KernelTable& table) {
    avx512::FillKernels(table);
    table.attention_workspace_bytes = &WorkspaceBytes;
    table.attention = &Attention;
  }
};

using DotPaired = MaybePaired<&avx512_bf16::DotAttentionWorkspaceBytes, &avx512_bf16::DotAttention>;
using TilePaired = MaybePaired<&amx::TileAttentionWorkspaceBytes, &amx::TileAttention>;

}  // namespace

KernelTable KernelsFor(Isa isa) {
  switch (isa) {
    case Isa::kReference: return reference::Kernels();
    case Isa::kAvx2: return Path<Isa::kAvx2, &avx2::FillKernels, &avx2::Scans>();
    case Isa::kAvx512: return Path<Isa::kAvx512, &avx512::FillKernels, &avx512::Scans>();
    case Isa::kAvx512Bf16: return Path<Isa::kAvx512Bf16, &DotPaired::FillKernels, &avx512::Scans>();
    case Isa::kAmx: return Path<Isa::kAmx, &TilePaired::FillKernels, &avx512::Scans>();
  }
  return reference::Kernels();
}

}  // namespace tessera::kernels
