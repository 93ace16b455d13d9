// The plain kernels: one thread per element or per sum, sums in f32 and in a fixed order. They are
// what every later kernel is held against on a GPU, and serve where no faster one fits.
//
// A launcher enqueues on the stream and returns what the runtime said of the launch; nothing is
// launched where there is nothing to compute. It checks nothing: shapes are checked one layer up
// (ops_check). Pointers are device memory; `void*` points to elements of `dtype`: f32, f16 or bf16.
// Strides are elements between rows; rows are dense inside. What a caller leaves out is 0, null or
// f32.
#pragma once

#include <cstdint>

#include "kernels/cuda/runtime.h"
#include "kernels/dtype.h"
#include "kernels/offset_blocks.h"

namespace tessera::kernels::cuda {

// RmsNorm and LayerNorm of ops.h. A row is `vectors` vectors of `width` (heads of qk-norm), each
// normalised by itself.
struct NormParams {
  void* out = nullptr;       // [rows, vectors, width]; may equal `in`
  const void* in = nullptr;  // [rows, vectors, width]
  void* residual = nullptr;  // [rows, vectors, width] or null: += in, and the sum is normalised
  const float* weight = nullptr;  // [width], or [vectors, width]
  const float* bias = nullptr;    // [width] or null
  // [rows] or null: of whole_width elements, in place of those of `in`
  const float* squares = nullptr;
  int64_t rows = 0, vectors = 0, width = 0, whole_width = 0;
  int64_t out_stride = 0, in_stride = 0, residual_stride = 0, squares_stride = 0;
  int64_t weight_stride = 0;  // between vectors; 0: they share it
  float epsilon = 0;
  bool subtract_mean = false;  // LayerNorm
  DType dtype = DType::kF32;
  DType out_dtype = DType::kF32;  // dtype, or any where that is f32
};

// Embedding of ops.h. The table's rows may be those of a linear's weights, see MatmulParams.
struct EmbeddingParams {
  void* out = nullptr;           // [tokens, hidden]
  const void* table = nullptr;   // [vocabulary_rows, hidden] of table_dtype: any of weights
  const int32_t* ids = nullptr;  // [tokens]; outside of [begin, begin + rows): zeros
  int64_t tokens = 0, hidden = 0, vocabulary_rows = 0, vocabulary_begin = 0;
  int64_t out_stride = 0, table_row_bytes = 0;
  int64_t scales_offset_bytes = 0, steps_offset_bytes = 0, group_size = 0;  // f8, i8, i4
  OffsetBlocks blocks = {};
  DType table_dtype = DType::kF32, dtype = DType::kF32;
  bool e2m1 = false;        // as in MatmulParams
  bool accumulate = false;  // out += row
};

// GatherRows of ops.h.
struct GatherParams {
  void* out = nullptr;                   // [rows, width]
  const void* in = nullptr;              // [in_rows, width]
  const int32_t* source_rows = nullptr;  // [rows]; outside of [0, in_rows): zeros
  int64_t rows = 0, width = 0, in_rows = 0;
  int64_t out_stride = 0, in_stride = 0;
  DType dtype = DType::kF32;
};

// FeedTokens of ops.h.
struct FeedTokensParams {
  int32_t* ids = nullptr;          // [tokens], in place
  const int32_t* drawn = nullptr;  // [rows]
  int64_t tokens = 0, rows = 0;
  int32_t first_fed = 0;  // the id that stands for drawn[0]; those below, for the next ones
};

// Add of ops.h.
struct AddParams {
  void* out = nullptr;       // [rows, width], in place
  const void* in = nullptr;  // [rows, width]
  int64_t rows = 0, width = 0;
  int64_t out_stride = 0, in_stride = 0;
  DType dtype = DType::kF32;
};

inline constexpr int kMaxSumRanks = 16;

// out[i] = ((in[0][i] + in[1][i]) + in[2][i]) + ..., f32: SumInRankOrder of kernels/collectives.
struct SumRanksParams {
  float* out = nullptr;                // [count]; may be one of `in`
  const float* in[kMaxSumRanks] = {};  // [ranks], each [count]
  int ranks = 0;
  int64_t count = 0;
};

// SumSquares of ops.h.
struct SumSquaresParams {
  float* out = nullptr;      // [rows]
  const void* in = nullptr;  // [rows, width]
  int64_t rows = 0, width = 0;
  int64_t out_stride = 0, in_stride = 0;
  DType dtype = DType::kF32;
};

// Scale of ops.h.
struct ScaleParams {
  void* rows = nullptr;                // [count, width], in place
  const int32_t* positions = nullptr;  // [count] or null
  int64_t count = 0, width = 0, stride = 0;
  float factor = 1, soft_cap = 0, limit = 0, position_gain = 0;
  int32_t position_period = 1, position_offset = 0;
  DType dtype = DType::kF32;
};

// Activation of ops.h.
enum class ActivationKind {
  kSilu,
  kGeluErf,
  kGeluTanh,
  kRelu,
  kRelu2,
  kRelu6,
  kLeakyRelu,
  kSigmoid,
  kTanh,
  kLinear,
  kHardSwish,
  kMish,
  kLaplace,
  kQuickGelu,
  kGelu10,
  kSqrtSoftplus,
};

// Activate and GatedActivate of ops.h.
struct ActivationParams {
  void* out = nullptr;       // [rows, width]
  const void* in = nullptr;  // [rows, width], gated: [rows, 2 * width]
  int64_t rows = 0, width = 0;
  int64_t out_stride = 0, in_stride = 0;
  ActivationKind kind = ActivationKind::kRelu;
  bool gated = false;                                  // act(first half) * second half
  DType dtype = DType::kF32, out_dtype = DType::kF32;  // as in NormParams
};

// ClampedGate of ops.h.
struct ClampedGateParams {
  void* out = nullptr;       // [rows, width]
  const void* in = nullptr;  // [rows, 2 * width]
  int64_t rows = 0, width = 0;
  int64_t out_stride = 0, in_stride = 0;
  float limit = 0, alpha = 0;
  DType dtype = DType::kF32, out_dtype = DType::kF32;  // as in NormParams
};

// RopeTable of ops.h.
struct RopeTableParams {
  float* cos_sin = nullptr;                    // [tokens, 2 * half]
  const int32_t* positions = nullptr;          // [tokens]
  const float* inverse_frequencies = nullptr;  // [half]
  const int32_t* lengths = nullptr;            // [tokens] where dynamic_factor is not 0
  int64_t tokens = 0, half = 0, cos_sin_stride = 0, original_max_position = 0;
  float attention_factor = 0, dynamic_factor = 0, theta = 0;
};

// Rope of ops.h.
struct RopeParams {
  void* q = nullptr;               // [tokens, heads, head_dim], in place
  void* k = nullptr;               // [tokens, kv_heads, head_dim], in place
  const float* cos_sin = nullptr;  // [tokens, rotary_dim]: cosines, then sines
  int64_t tokens = 0, heads = 0, kv_heads = 0, head_dim = 0, rotary_dim = 0;
  int64_t q_stride = 0, k_stride = 0, cos_sin_stride = 0;
  DType dtype = DType::kF32;
};

// Linear of ops.h: out = in * weights^T + bias; k ascends in each sum. With `row_range`, one expert
// of GroupedLinear: only output rows [row_range[0], row_range[1]), of at most `rows`.
struct MatmulParams {
  void* out = nullptr;                   // [rows, columns] of out_dtype
  const void* in = nullptr;              // [rows, depth]
  const void* weights = nullptr;         // [columns, depth] of weight_dtype
  const float* bias = nullptr;           // [columns] or null
  const int32_t* row_range = nullptr;    // [2] or null
  const int32_t* source_rows = nullptr;  // [rows] or null: the row of `in` that an output row reads
  int64_t rows = 0, columns = 0, depth = 0;
  int64_t out_stride = 0, in_stride = 0, weight_row_bytes = 0;
  // f8, i8, i4: group_size values of a row share the scale (i4: word) at scales_offset_bytes + 4 *
  // group of the row. i4 with offsets: a pair of each block there, and, unless 0, steps of each
  // group at steps_offset_bytes.
  int64_t scales_offset_bytes = 0, steps_offset_bytes = 0, group_size = 0;
  OffsetBlocks blocks = {};
  DType weight_dtype = DType::kF32, in_dtype = DType::kF32, out_dtype = DType::kF32;
  bool e2m1 = false;  // i4: codes are e2m1, and scales f32, see LinearSpec
};

namespace TESSERA_CUDA_PLATFORM {

cudaError_t LaunchNorm(const NormParams& params, cudaStream_t stream);
cudaError_t LaunchEmbedding(const EmbeddingParams& params, cudaStream_t stream);
cudaError_t LaunchSumSquares(const SumSquaresParams& params, cudaStream_t stream);
cudaError_t LaunchScale(const ScaleParams& params, cudaStream_t stream);
cudaError_t LaunchGather(const GatherParams& params, cudaStream_t stream);
cudaError_t LaunchFeedTokens(const FeedTokensParams& params, cudaStream_t stream);
cudaError_t LaunchAdd(const AddParams& params, cudaStream_t stream);
cudaError_t LaunchSumRanks(const SumRanksParams& params, cudaStream_t stream);
cudaError_t LaunchActivation(const ActivationParams& params, cudaStream_t stream);
cudaError_t LaunchClampedGate(const ClampedGateParams& params, cudaStream_t stream);
cudaError_t LaunchRopeTable(const RopeTableParams& params, cudaStream_t stream);
cudaError_t LaunchRope(const RopeParams& params, cudaStream_t stream);
cudaError_t LaunchMatmul(const MatmulParams& params, cudaStream_t stream);

}  // namespace TESSERA_CUDA_PLATFORM
}  // namespace tessera::kernels::cuda
