// One kernel per instruction of kernels/cuda/warp_ops.h: it executes the instruction in one warp
// and writes what came of it. The first thing to run on a new GPU.
#pragma once

#include <cstdint>

#include "kernels/cuda/runtime.h"

namespace tessera::kernels::cuda {

enum class Product { k16x8x16F16, k16x8x16BF16, k16x8x8F16, k16x8x8BF16 };

// Registers as they are, of lane after lane.
struct ProductParams {
  const uint32_t* a;  // [32, 4], of k = 8: [32, 2]
  const uint32_t* b;  // [32, 2], of k = 8: [32, 1]
  float* c;           // [32, 4], in place
};

struct LoadParams {
  const uint16_t* matrices;  // [4, 8, 8]
  uint32_t* registers;       // out [32, 4]
  bool transposed;
};

// 32 lanes copy in two groups, 16 bytes each; of the second, lanes with an odd number copy zeros.
// Between the waits, the first group alone is read.
struct CopyParams {
  const uint32_t* in;  // [2, 32, 4]
  uint32_t* out;       // [2, 32, 4]
};

// A producer warp and two consumer warps hand on `rounds` values by two named barriers.
struct BarrierParams {
  const float* in;  // [rounds]
  float* out;       // [64]: each consumer's sum, in order
  int rounds;
};

// The exchanges of platform.h: out[k * 32 + lane] for k = xor 5, lane 3 of each 8, up 2, down 2 of
// each 16, ballot of the even lanes, any of lane 7, all below lane 31, bytes: 0x43, lane + 64,
// lane, 0x43 from the highest one on.
struct ExchangeParams {
  uint32_t* out;  // [8, 32]
};

// A lane's sum of two pairs, of bf16 or f16; and (a & 0x0ff00ff0) | b.
struct PairSumParams {
  const uint32_t* a;  // [32]
  const uint32_t* b;  // [32]
  uint32_t* sums;     // [32]
  uint32_t* masked;   // [32]
  bool bf16;
};

// A lane's number as a power of two; it and the one of lane 31 - i as a pair of halves.
struct NumberParams {
  const float* in;       // [32]
  float* powers;         // [32]
  uint32_t* bf16_pairs;  // [32]
  uint32_t* f16_pairs;   // [32]
};

namespace TESSERA_CUDA_PLATFORM {

cudaError_t LaunchProduct(Product product, const ProductParams& params, cudaStream_t stream);
cudaError_t LaunchLoad(const LoadParams& params, cudaStream_t stream);
cudaError_t LaunchCopy(const CopyParams& params, cudaStream_t stream);
cudaError_t LaunchBarrier(const BarrierParams& params, cudaStream_t stream);
cudaError_t LaunchNumbers(const NumberParams& params, cudaStream_t stream);
cudaError_t LaunchPairSums(const PairSumParams& params, cudaStream_t stream);
cudaError_t LaunchExchange(const ExchangeParams& params, cudaStream_t stream);

}  // namespace TESSERA_CUDA_PLATFORM
}  // namespace tessera::kernels::cuda
