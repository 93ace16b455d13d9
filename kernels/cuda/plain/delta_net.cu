// The convolution: a thread per channel of a sequence. The gated delta rule: a block per value head
// of a sequence, a thread per column of its state. Both go through the rows of a sequence in order.
#include "kernels/cuda/launch/plain_shapes.h"
#include "kernels/cuda/plain/delta_net_kernels.h"
#include "kernels/cuda/plain/fours.h"
#include "kernels/cuda/plain/sums.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

constexpr int kMaxTaps = 8;
constexpr int kMaxDraftHeadDim = 256;               // as ops.h
static_assert(kMaxDraftHeadDim <= kMaxRowThreads);  // a thread has one column then

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

// 1 over the length of a head of q or k; all threads of the block call.
__device__ __forceinline__ float InverseLength(const float* head, int64_t width, float* sums) {
  float squares = 0;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) squares += head[i] * head[i];
  return 1.0f / sqrtf(SumOfRow(squares, sums) + 1e-6f);
}

// Blocks: sequences * value heads. Rows that leave nothing go on in a copy of the state's column.
template <bool kDrafts>
__global__ void GatedDeltaKernel(GatedDeltaParams p) {
  TESSERA_SHARED(float, sums, kMaxRowWarps);
  const int64_t head = blockIdx.x % p.value_heads;
  const SeatRows rows = RowsOf(p.at, blockIdx.x / p.value_heads);
  if (rows.first == rows.end) return;
  const int64_t key_head = head / (p.value_heads / p.key_heads);
  float* states = p.states + (rows.seat * p.value_heads + head) * p.key_dim * p.value_dim;
  const float rate = expf(p.decay_log[head]);
  float tried[kDrafts ? kMaxDraftHeadDim : 1];
  for (int64_t row = rows.first; row < rows.end; ++row) {
    const bool from_zeros = rows.from_zeros && row == rows.first;
    const float* q = p.queries + row * p.queries_stride + key_head * p.key_dim;
    const float* k = p.keys + row * p.keys_stride + key_head * p.key_dim;
    const float q_scale = InverseLength(q, p.key_dim, sums) / sqrtf(static_cast<float>(p.key_dim));
    const float k_scale = InverseLength(k, p.key_dim, sums);
    const float* gates = p.gates + row * p.gates_stride;
    const float step = gates[p.value_heads + head] + p.decay_bias[head];
    const float decay = expf(-rate * (step > 20.0f ? step : log1pf(expf(step))));
    const float beta = 1.0f / (1.0f + expf(-gates[head]));
    for (int64_t j = threadIdx.x; j < p.value_dim; j += blockDim.x) {
      float* state = states + j;
      int64_t stride = p.value_dim;
      if (kDrafts && row >= rows.kept) {
        for (int64_t i = 0; i < p.key_dim && row == rows.kept; ++i) tried[i] = state[i * stride];
        state = tried;
        stride = 1;
      }
      float* place = p.values + row * p.values_stride + head * p.value_dim + j;
      float known = 0;
      for (int64_t i = 0; i < p.key_dim && !from_zeros; ++i) {
        known += state[i * stride] * k[i];
      }
      const float change = beta * (*place - known * k_scale * decay) * k_scale;
      float read = 0;
      for (int64_t i = 0; i < p.key_dim; ++i) {
        const float kept = from_zeros ? 0.0f : state[i * stride] * decay;
        const float now = kept + k[i] * change;
        state[i * stride] = now;
        read += now * q[i];
      }
      *place = read * q_scale;
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
  const int64_t blocks = params.at.sequences * params.value_heads;
  if (blocks == 0 || params.value_dim == 0) return cudaSuccess;
  const LaunchShape shape = RowShape(blocks, params.value_dim);
  return params.at.draft_rows == nullptr ? Launch(GatedDeltaKernel<false>, shape, stream, params)
                                         : Launch(GatedDeltaKernel<true>, shape, stream, params);
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
