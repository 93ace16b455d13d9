// Products of rows with weights of 16, 8 or 4 bits: GEMV for few rows, tensor cores for many, and
// what rounds f32 rows for these. Which serves what: launch/linear_shapes.h.
//
// What plain_kernels.h says of launchers holds here. Sums are f32, in an order that depends on the
// depth and the columns alone.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch/linear_shapes.h"
#include "kernels/cuda/runtime.h"
#include "kernels/dtype.h"
#include "kernels/offset_blocks.h"

namespace tessera::kernels::cuda {

// A linear, or, with `expert_offsets`, one per expert over rows sorted by expert: out = in *
// weights^T + bias.
//
// Rows of weights begin at multiples of 16 bytes, and are zero from their end to the next one;
// float8, int8 and int4 codes are followed by their scales or words, see device/weight_rows.h. `in`
// may be anything for GEMV; for tensor cores its rows, too, begin at multiples of 16 bytes and are
// zero up to the next one.
struct LinearParams {
  void* out = nullptr;            // [rows, columns] of out_dtype: f32, f16 or bf16
  const void* in = nullptr;       // [rows, depth] of in_dtype
  const void* weights = nullptr;  // [columns, depth] of weight_dtype: f16, bf16, f8, i8, i4
  const float* bias = nullptr;    // [columns] or null
  // [experts + 1] or null: rows [offsets[e], offsets[e + 1]) meet expert e; others are left alone.
  const int32_t* expert_offsets = nullptr;
  const int32_t* source_rows = nullptr;  // [rows] or null: the row of `in` that an output row reads
  int64_t rows = 0, columns = 0, depth = 0;
  int64_t out_stride = 0, in_stride = 0;  // elements
  int64_t weight_row_bytes = 0, scales_offset_bytes = 0, group_size = 0;
  int64_t steps_offset_bytes = 0;  // i4 with offsets in blocks of several groups; else 0
  OffsetBlocks blocks = {};
  int64_t experts = 1, expert_bytes = 0;  // from one expert's weights to the next one's
  // Experts with fewer or more rows are left alone; a maximum of 0 is none. With offsets.
  int min_expert_rows = 0, max_expert_rows = 0;
  // Above 0 experts are heads, of so many rows each: row t * experts + h meets head h. Weights of
  // 16 bits, without offsets, source_rows and silu_gate.
  int head_rows = 0;
  DType weight_dtype = DType::kBF16, in_dtype = DType::kF32, out_dtype = DType::kF32;
  bool e2m1 = false;  // i4: codes are e2m1, and scales f32, see LinearSpec
  // GEMV without experts, f32 outputs: `out` is [rows, columns / 2], SiLU of the first half of the
  // columns times the second half.
  bool silu_gate = false;
  // GEMM of at most kMaxSplitRows rows: room for GemmPartBytes, from a multiple of 16 bytes on, or
  // null: the depth is not split. Null with experts.
  float* part_sums = nullptr;
  // With them: kMaxSplitTiles zeros, which are zeros again when the launch has ended.
  int32_t* arrivals = nullptr;
  int capability = 75, multiprocessors = 1;  // of the GPU, for the shape
  GemmChoice choice = {};                    // of GEMM: of GemmChoices
};

// Rows as f16 or bf16, each from a multiple of 16 bytes on and zero up to the next one; beyond f16
// becomes its largest number.
struct RoundRowsParams {
  void* out = nullptr;       // [rows, out_stride] of out_dtype
  const void* in = nullptr;  // [rows, width] of in_dtype
  int64_t rows = 0, width = 0;
  int64_t out_stride = 0, in_stride = 0;  // elements; out_stride a multiple of 8
  DType in_dtype = DType::kF32, out_dtype = DType::kBF16;
};

// Codes of a matrix as f16 or bf16, rounded; beyond f16 is its largest number.
struct WidenParams {
  void* out = nullptr;            // [columns, out_stride] of out_dtype, zeros behind the depth
  const void* weights = nullptr;  // [columns, depth] of weight_dtype: f8, i8, i4
  int64_t columns = 0, depth = 0, out_stride = 0;  // elements; out_stride is even
  // As in LinearParams.
  int64_t weight_row_bytes = 0, scales_offset_bytes = 0, group_size = 0, steps_offset_bytes = 0;
  OffsetBlocks blocks = {};
  DType weight_dtype = DType::kI8, out_dtype = DType::kBF16;
  bool e2m1 = false;
};

namespace TESSERA_CUDA_PLATFORM {

// InvalidValue for types that ChooseLinear gives to another kernel, and for what is not aligned.
cudaError_t LaunchGemv(const LinearParams& params, cudaStream_t stream);
cudaError_t LaunchGemm(const LinearParams& params, cudaStream_t stream);
cudaError_t LaunchRoundRows(const RoundRowsParams& params, cudaStream_t stream);
cudaError_t LaunchWiden(const WidenParams& params, cudaStream_t stream);

}  // namespace TESSERA_CUDA_PLATFORM
}  // namespace tessera::kernels::cuda
