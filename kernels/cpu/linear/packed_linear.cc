#include "kernels/cpu/linear/packed_linear.h"

#include "kernels/cpu/linear/geometry.h"
#include "kernels/cpu/linear/linear_driver.h"
#include "kernels/cpu/linear/pack.h"

namespace tessera::kernels::cpu {
namespace {

const linear::KernelSet& KernelsOf(Isa isa) {
  switch (isa) {
    case Isa::kAmx: return linear::kAmxKernels;
    case Isa::kAvx512Bf16: return linear::kAvx512DotKernels;
    case Isa::kAvx512: return linear::kAvx512Kernels;
    default: return linear::kAvx2Kernels;
  }
}

}  // namespace

int64_t PackedBytes(Isa isa, const LinearSpec& spec) {
  return linear::PackedPanelBytes(spec, linear::KernelFor(KernelsOf(isa), spec.weight_dtype));
}

absl::Status PackRows(Isa isa, const PackedWeights& weights, int64_t first_row,
                      const TensorView& source) {
  const linear::Kernel& kernel = linear::KernelFor(KernelsOf(isa), weights.spec.weight_dtype);
  return linear::PackPanels(kernel, weights, first_row, source);
}

void UnpackRows(Isa isa, const PackedWeights& weights, int64_t first_row,
                const TensorView& out_f32) {
  const linear::Kernel& kernel = linear::KernelFor(KernelsOf(isa), weights.spec.weight_dtype);
  linear::UnpackPanels(kernel, weights, first_row, out_f32);
}

bool ComputesUnpacked(const LinearSpec& spec, const UnpackedRows& rows) {
  return linear::TurnsPanels(spec, rows);
}

int64_t WorkspaceBytes(Isa isa, const LinearSpec& spec, int64_t rows, int threads) {
  return linear::DriverWorkspaceBytes(KernelsOf(isa), spec, rows, threads);
}

void RunLinear(Isa isa, const LinearArgs& args, ThreadPool& pool) {
  linear::DriveLinear(KernelsOf(isa), args, pool);
}

void RunGroupedLinear(Isa isa, const GroupedLinearArgs& args, ThreadPool& pool) {
  linear::DriveGroupedLinear(KernelsOf(isa), args, pool);
}

}  // namespace tessera::kernels::cpu
