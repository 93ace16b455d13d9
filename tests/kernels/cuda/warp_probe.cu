#include "kernels/cuda/warp_ops.h"
#include "tests/kernels/cuda/warp_probe.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

template <typename T, int depth>
__global__ void ProductKernel(ProductParams p) {
  const unsigned lane = threadIdx.x;
  uint32_t a[depth / 4], b[depth / 8];
  float c[4];
  for (int i = 0; i < depth / 4; ++i) a[i] = p.a[lane * (depth / 4) + i];
  for (int i = 0; i < depth / 8; ++i) b[i] = p.b[lane * (depth / 8) + i];
  for (int i = 0; i < 4; ++i) c[i] = p.c[lane * 4 + i];
  if constexpr (depth == 16) {
    Mma16x8x16<T>(c, a, b);
  } else {
    Mma16x8x8<T>(c, a, b[0]);
  }
  for (int i = 0; i < 4; ++i) p.c[lane * 4 + i] = c[i];
}

__global__ void LoadKernel(LoadParams p) {
  TESSERA_DYNAMIC_SHARED(memory);
  const unsigned lane = threadIdx.x;
  auto* rows = reinterpret_cast<uint16_t*>(memory);
  for (unsigned i = lane; i < 256; i += 32) rows[i] = p.matrices[i];
  __syncwarp();
  uint32_t r[4];
  if (p.transposed) {
    LoadMatricesTransposed(r, rows + lane * 8);
  } else {
    LoadMatrices(r, rows + lane * 8);
  }
  for (int i = 0; i < 4; ++i) p.registers[lane * 4 + i] = r[i];
}

// Each lane reads what its neighbour copied.
__global__ void CopyKernel(CopyParams p) {
  TESSERA_DYNAMIC_SHARED(memory);
  const unsigned lane = threadIdx.x, neighbour = (lane + 1) % 32;
  auto* words = reinterpret_cast<uint32_t*>(memory);
  CopyAsync16(words + lane * 4, p.in + lane * 4, true);
  CommitCopies();
  CopyAsync16(words + 128 + lane * 4, p.in + 128 + lane * 4, lane % 2 == 0);
  CommitCopies();
  WaitCopies<1>();
  __syncwarp();
  for (int i = 0; i < 4; ++i) p.out[neighbour * 4 + i] = words[neighbour * 4 + i];
  WaitCopies<0>();
  __syncwarp();
  for (int i = 0; i < 4; ++i) p.out[128 + neighbour * 4 + i] = words[128 + neighbour * 4 + i];
}

__global__ void BarrierKernel(BarrierParams p) {
  TESSERA_SHARED(float, value, 1);
  constexpr int kFull = 1, kEmpty = 2, kThreads = 96;
  const int thread = static_cast<int>(threadIdx.x);
  float sum = 0;
  for (int i = 0; i < p.rounds; ++i) {
    if (thread < 32) {
      if (i > 0) SyncNamedBarrier(kEmpty, kThreads);
      if (thread == 0) value[0] = p.in[i];
      __syncwarp();
      ArriveNamedBarrier(kFull, kThreads);
    } else {
      SyncNamedBarrier(kFull, kThreads);
      sum += value[0];
      if (i < p.rounds - 1) ArriveNamedBarrier(kEmpty, kThreads);
    }
  }
  if (thread >= 32) p.out[thread - 32] = sum;
}

__global__ void ExchangeKernel(ExchangeParams p) {
  const unsigned lane = threadIdx.x;
  p.out[lane] = __shfl_xor_sync(kAllLanes, lane, 5);
  p.out[32 + lane] = __shfl_sync(kAllLanes, lane, 3, 8);
  p.out[64 + lane] = __shfl_up_sync(kAllLanes, lane, 2);
  p.out[96 + lane] = __shfl_down_sync(kAllLanes, lane, 2, 16);
  p.out[128 + lane] = __ballot_sync(kAllLanes, lane % 2 == 0);
  p.out[160 + lane] = __any_sync(kAllLanes, lane == 7) ? 1 : 0;
  p.out[192 + lane] = __all_sync(kAllLanes, lane < 31) ? 1 : 0;
  p.out[224 + lane] = __byte_perm(lane << 8 | (lane + 64) << 24, 0x43434343u, 0x4314);
}

__global__ void NumberKernel(NumberParams p) {
  const unsigned lane = threadIdx.x;
  p.powers[lane] = Exp2(p.in[lane]);
  p.bf16_pairs[lane] = RoundPair<BFloat16>(p.in[lane], p.in[31 - lane]);
  p.f16_pairs[lane] = RoundPair<Float16>(p.in[lane], p.in[31 - lane]);
}

__global__ void PairSumKernel(PairSumParams p) {
  const unsigned lane = threadIdx.x;
  p.sums[lane] =
      p.bf16 ? AddPairs<BFloat16>(p.a[lane], p.b[lane]) : AddPairs<Float16>(p.a[lane], p.b[lane]);
  p.masked[lane] = MaskAndOr(p.a[lane], 0x0ff00ff0u, p.b[lane]);
}

LaunchShape Warps(int warps, int64_t shared_bytes = 0) {
  LaunchShape shape;
  shape.threads.x = warps * kWarpThreads;
  shape.shared_bytes = shared_bytes;
  return shape;
}

}  // namespace

cudaError_t LaunchProduct(Product product, const ProductParams& params, cudaStream_t stream) {
  const LaunchShape shape = Warps(1);
  switch (product) {
    case Product::k16x8x16F16: return Launch(ProductKernel<Float16, 16>, shape, stream, params);
    case Product::k16x8x16BF16: return Launch(ProductKernel<BFloat16, 16>, shape, stream, params);
    case Product::k16x8x8F16: return Launch(ProductKernel<Float16, 8>, shape, stream, params);
    case Product::k16x8x8BF16: return Launch(ProductKernel<BFloat16, 8>, shape, stream, params);
  }
  return cudaErrorInvalidValue;
}

cudaError_t LaunchLoad(const LoadParams& params, cudaStream_t stream) {
  return Launch(LoadKernel, Warps(1, 512), stream, params);
}

cudaError_t LaunchCopy(const CopyParams& params, cudaStream_t stream) {
  return Launch(CopyKernel, Warps(1, 1024), stream, params);
}

cudaError_t LaunchBarrier(const BarrierParams& params, cudaStream_t stream) {
  return Launch(BarrierKernel, Warps(3), stream, params);
}

cudaError_t LaunchNumbers(const NumberParams& params, cudaStream_t stream) {
  return Launch(NumberKernel, Warps(1), stream, params);
}

cudaError_t LaunchPairSums(const PairSumParams& params, cudaStream_t stream) {
  return Launch(PairSumKernel, Warps(1), stream, params);
}

cudaError_t LaunchExchange(const ExchangeParams& params, cudaStream_t stream) {
  return Launch(ExchangeKernel, Warps(1), stream, params);
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
