// The convolution: a thread per channel of a sequence. The gated delta rule: four threads per
// column of a value head's state. Both go through the rows of a sequence in order.
#include "kernels/cuda/launch/delta_shapes.h"
#include "kernels/cuda/launch/plain_shapes.h"
#include "kernels/cuda/plain/delta_net_kernels.h"
#include "kernels/cuda/plain/fours.h"
#include "kernels/cuda/plain/sums.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

constexpr int kMaxTaps = 8;

struct SeatRows {
  int64_t seat, first, end;
  int64_t kept;  // end of those that leave something
  bool from_zeros;
};

// The rows of sequence `s`; none where it has no seat.
__device__ __forceinline__ SeatRows RowsOf(const SeatParams& p, int64_t s) {
  const int64_t seat = p.seats[s], first = p.query_starts[s];
  const int64_t end = seat < 0 ? first : p.query_starts[s + 1];
  const int64_t drafts = p.draft_rows == nullptr || end == first ? 0 : p.draft_rows[s];
  return {seat, first, end, end - drafts, p.context_lengths[s] == end - first};
}

// Blocks (sequences, parts of the channels).
__global__ void CausalConvKernel(CausalConvParams p) {
  const SeatRows rows = RowsOf(p.at, blockIdx.x);
  const int taps = static_cast<int>(p.taps);
  if (rows.first == rows.end) return;
  for (int64_t c = FirstOfThread(); c < p.channels; c += ThreadsOfRow()) {
    float* state = p.states + rows.seat * (p.taps - 1) * p.channels + c;
    const float* weights = p.weights + c * p.taps;
    float inputs[kMaxTaps] = {};
    for (int t = 1; t < taps; ++t) {
      inputs[t] = rows.from_zeros ? 0.0f : state[(t - 1) * p.channels];
    }
    for (int64_t row = rows.first; row < rows.end; ++row) {
      float* place = p.rows + row * p.rows_stride + c;
      for (int t = 0; t + 1 < taps; ++t) inputs[t] = inputs[t + 1];
      inputs[taps - 1] = *place;
      float sum = 0;
      for (int t = 0; t < taps; ++t) sum += inputs[t] * weights[t];
      *place = sum / (1.0f + expf(-sum));
      for (int t = 1; t < taps && row + 1 == rows.kept; ++t) {
        state[(t - 1) * p.channels] = inputs[t];
      }
    }
  }
}

// What the rows of a tile have in common with all columns of a head.
struct DeltaGates {
  float query_scale, key_scale, decay, beta;
};

// Rows of a head on their way through shared memory. kKeys: no less than key_dim.
template <int kKeys>
struct DeltaTile {
  float* keys;     // [kDeltaRows, kKeys], zeros behind key_dim
  float* queries;  // the same
  float* values;   // [kDeltaRows, kDeltaColumns]
  DeltaGates* gates;

  // Rows [first, first + count); all threads of the block, between barriers.
  __device__ __forceinline__ void Load(const GatedDeltaParams& p, int64_t first, int count,
                                       int64_t head, int64_t first_column) const {
    const int64_t key_head = head / (p.value_heads / p.key_heads);
    const auto thread = static_cast<int>(threadIdx.x);
    for (int i = thread; i < count * kKeys; i += kDeltaThreads) {
      const int64_t row = first + i / kKeys, at = i % kKeys;
      const int64_t from = key_head * p.key_dim + at;
      keys[i] = at < p.key_dim ? p.keys[row * p.keys_stride + from] : 0.0f;
      queries[i] = at < p.key_dim ? p.queries[row * p.queries_stride + from] : 0.0f;
    }
    for (int i = thread; i < count * kDeltaColumns; i += kDeltaThreads) {
      const int64_t row = first + i / kDeltaColumns, column = first_column + i % kDeltaColumns;
      const float* const of_head = p.values + row * p.values_stride + head * p.value_dim;
      values[i] = column < p.value_dim ? of_head[column] : 0.0f;
    }
  }

  // Behind Load and a barrier: a warp for each row.
  __device__ __forceinline__ void FindGates(const GatedDeltaParams& p, int64_t first, int count,
                                            int64_t head) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    const float rate = expf(p.decay_log[head]);
    for (int row = static_cast<int>(threadIdx.x) / kWarpThreads; row < count;
         row += kDeltaThreads / kWarpThreads) {
      const float* const own = p.gates + (first + row) * p.gates_stride;
      const float step = own[p.value_heads + head] + p.decay_bias[head];
      const float of_query = InverseLength(queries + row * kKeys, lane);
      const DeltaGates found = {of_query / sqrtf(static_cast<float>(p.key_dim)),
                                InverseLength(keys + row * kKeys, lane),
                                expf(-rate * (step > 20.0f ? step : log1pf(expf(step)))),
                                1.0f / (1.0f + expf(-own[head]))};
      if (lane == 0) gates[row] = found;
    }
  }

 private:
  // 1 over the length of a head of q or k.
  __device__ __forceinline__ static float InverseLength(const float* head, int lane) {
    float squares = 0;
    for (int i = lane; i < kKeys; i += kWarpThreads) squares += head[i] * head[i];
    return 1.0f / sqrtf(SumOfWarp(squares) + 1e-6f);
  }
};

// Every kDeltaParts-th element, from `part` on, of a column of the state, in registers.
template <int kHeld>
struct StateColumn {
  float held[kHeld];

  // `column`: of the head, in a state [key_dim, value_dim]. What is not there is 0.
  __device__ __forceinline__ void Load(const GatedDeltaParams& p, const float* column, int part,
                                       bool there) {
#pragma unroll
    for (int e = 0; e < kHeld; ++e) {
      const int i = e * kDeltaParts + part;
      held[e] = there && i < p.key_dim ? column[i * p.value_dim] : 0.0f;
    }
  }
  __device__ __forceinline__ void Store(const GatedDeltaParams& p, float* column, int part) const {
#pragma unroll
    for (int e = 0; e < kHeld; ++e) {
      const int i = e * kDeltaParts + part;
      if (i < p.key_dim) column[i * p.value_dim] = held[e];
    }
  }
  // The delta rule for a row; what it reads of the column. `key`, `query`: from `part` on.
  __device__ __forceinline__ float Step(const float* key, const float* query, float value,
                                        const DeltaGates& gates) {
    float known = 0;
#pragma unroll
    for (int e = 0; e < kHeld; ++e) known += held[e] * key[e * kDeltaParts];
    known = SumOfParts(known);
    const float change =
        gates.beta * (value - known * gates.key_scale * gates.decay) * gates.key_scale;
    float read = 0;
#pragma unroll
    for (int e = 0; e < kHeld; ++e) {
      held[e] = held[e] * gates.decay + key[e * kDeltaParts] * change;
      read += held[e] * query[e * kDeltaParts];
    }
    return SumOfParts(read) * gates.query_scale;
  }

 private:
  __device__ __forceinline__ static float SumOfParts(float sum) {
#pragma unroll
    for (int mask = 1; mask < kDeltaParts; mask *= 2) sum += __shfl_xor_sync(kAllLanes, sum, mask);
    return sum;
  }
};

// Blocks (sequences * value heads, columns of the state): a column stays in the registers of its
// kDeltaParts threads while all rows go by. Rows that leave nothing are the last ones: the state
// goes back to its seat in front of them.
template <int kHeld>
__global__ void __launch_bounds__(kDeltaThreads) GatedDeltaKernel(GatedDeltaParams p) {
  constexpr int kKeys = kHeld * kDeltaParts;
  TESSERA_SHARED(float, keys, kDeltaRows* kKeys);
  TESSERA_SHARED(float, queries, kDeltaRows* kKeys);
  TESSERA_SHARED(float, values, kDeltaRows* kDeltaColumns);
  TESSERA_SHARED(DeltaGates, gates, kDeltaRows);
  const DeltaTile<kKeys> tile = {keys, queries, values, gates};
  const int64_t head = blockIdx.x % p.value_heads;
  const SeatRows rows = RowsOf(p.at, blockIdx.x / p.value_heads);
  if (rows.first == rows.end) return;  // the whole block
  const int part = static_cast<int>(threadIdx.x) % kDeltaParts;
  const int own = static_cast<int>(threadIdx.x) / kDeltaParts;
  const int64_t first_column = int64_t{blockIdx.y} * kDeltaColumns, column = first_column + own;
  const bool there = column < p.value_dim;
  float* const state =
      p.states + (rows.seat * p.value_heads + head) * p.key_dim * p.value_dim + column;
  StateColumn<kHeld> held;
  held.Load(p, state, part, there && !rows.from_zeros);
  for (int64_t first = rows.first; first < rows.end; first += kDeltaRows) {
    const int count = static_cast<int>(min(rows.end - first, int64_t{kDeltaRows}));
    __syncthreads();  // all are through with the rows before
    tile.Load(p, first, count, head, first_column);
    __syncthreads();
    tile.FindGates(p, first, count, head);
    __syncthreads();
    for (int i = 0; i < count; ++i) {
      const int64_t row = first + i;
      const float read = held.Step(keys + i * kKeys + part, queries + i * kKeys + part,
                                   values[i * kDeltaColumns + own], gates[i]);
      if (!there) continue;
      if (part == 0) p.values[row * p.values_stride + head * p.value_dim + column] = read;
      if (row + 1 == rows.kept) held.Store(p, state, part);
    }
  }
}

}  // namespace

cudaError_t LaunchCausalConv(const CausalConvParams& params, cudaStream_t stream) {
  if (params.at.sequences == 0 || params.channels == 0) return cudaSuccess;
  return Launch(CausalConvKernel, SpreadShape(params.at.sequences, params.channels), stream,
                params);
}

cudaError_t LaunchGatedDelta(const GatedDeltaParams& params, cudaStream_t stream) {
  const int64_t heads = params.at.sequences * params.value_heads;
  if (heads == 0 || params.value_dim == 0) return cudaSuccess;
  const LaunchShape shape = DeltaShape(heads, params.value_dim);
  if (params.key_dim <= 16 * kDeltaParts) {
    return Launch(GatedDeltaKernel<16>, shape, stream, params);
  }
  if (params.key_dim <= 32 * kDeltaParts) {
    return Launch(GatedDeltaKernel<32>, shape, stream, params);
  }
  if (params.key_dim <= kMaxDeltaKeys) return Launch(GatedDeltaKernel<64>, shape, stream, params);
  return cudaErrorInvalidValue;
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
