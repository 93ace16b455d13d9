#include "kernels/cpu/linear/packed_linear.h"

#include "kernels/cpu/linear/geometry.h"
#include "kernels/cpu/linear/linear_driver.h"
#include "kernels/cpu/linear/pack.h"

namespace tessera::kernels::cpu {
namespace {

const linear::KernelSet& KernelsOf(Isa isa) {
  static const bool multiplies_bf16 =
      DetectCpuFeatures().avx512_bf16 && __builtin_cpu_supports("avx512vbmi") != 0;
  if (isa == Isa::kAmx) return linear::kAmxKernels;
  if (isa == Isa::kAvx2) return linear::kAvx2Kernels;
  return multiplies_bf16 ? linear::kAvx512DotKernels : linear::kAvx512Kernels;
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

int64_t WorkspaceBytes(Isa isa, const LinearSpec& spec, int64_t rows) {
  return linear::DriverWorkspaceBytes(KernelsOf(isa), spec, rows);
}

void RunLinear(Isa isa, const LinearArgs& args, ThreadPool& pool) {
  linear::DriveLinear(KernelsOf(isa), args, pool);
}

void RunGroupedLinear(Isa isa, const GroupedLinearArgs& args, ThreadPool& pool) {
  linear::DriveGroupedLinear(KernelsOf(isa), args, pool);
}

}  // namespace tessera::kernels::cpu
