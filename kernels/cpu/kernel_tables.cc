#include "kernels/cpu/kernel_tables.h"

#include "kernels/cpu/linear/packed_linear.h"
#include "kernels/cpu/reference/reference_kernels.h"

namespace tessera::kernels {
namespace {

// The packed linear of one path as plain functions.
template <Isa isa>
struct Packed {
  static int64_t PackedWeightBytes(const LinearSpec& spec) { return cpu::PackedBytes(isa, spec); }
  static absl::Status PackWeightRows(const PackedWeights& weights, int64_t first_row,
                                     const TensorView& source) {
    return cpu::PackRows(isa, weights, first_row, source);
  }
  static void UnpackWeightRows(const PackedWeights& weights, int64_t first_row,
                               const TensorView& out_f32) {
    cpu::UnpackRows(isa, weights, first_row, out_f32);
  }
  static int64_t LinearWorkspaceBytes(const LinearSpec& spec, int64_t rows, DType, int) {
    return cpu::WorkspaceBytes(isa, spec, rows);
  }
  static int64_t GroupedWorkspaceBytes(const LinearSpec& spec, int64_t slots, int64_t, DType, int) {
    return cpu::WorkspaceBytes(isa, spec, slots);
  }
  static void Linear(const LinearArgs& args, ThreadPool& pool) { cpu::RunLinear(isa, args, pool); }
  static void GroupedLinear(const GroupedLinearArgs& args, ThreadPool& pool) {
    cpu::RunGroupedLinear(isa, args, pool);
  }
};

template <Isa isa>
constexpr LinearKernels PackedLinears() {
  return {.packed_weight_bytes = &Packed<isa>::PackedWeightBytes,
          .pack_weight_rows = &Packed<isa>::PackWeightRows,
          .unpack_weight_rows = &Packed<isa>::UnpackWeightRows,
          .linear_workspace_bytes = &Packed<isa>::LinearWorkspaceBytes,
          .grouped_workspace_bytes = &Packed<isa>::GroupedWorkspaceBytes,
          .linear = &Packed<isa>::Linear,
          .grouped_linear = &Packed<isa>::GroupedLinear};
}

}  // namespace

KernelTable KernelsFor(Isa isa) {
  KernelTable table = reference::Kernels();
  switch (isa) {
    case Isa::kReference:
      break;
    case Isa::kAvx2:
      table.linear = PackedLinears<Isa::kAvx2>();
      break;
    case Isa::kAvx512:
      table.linear = PackedLinears<Isa::kAvx512>();
      break;
    case Isa::kAmx:
      table.linear = PackedLinears<Isa::kAmx>();
      break;
  }
  return table;
}

}  // namespace tessera::kernels
