// Keys and values of a paged cache to the bytes that go to another replica, and back: EncodeKv and
// DecodeKv of ops.h.
//
// Launchers as those of kernels/cuda/plain/plain_kernels.h. The bytes are those of kvcache's
// codecs, bit for bit; a NaN that arithmetic made is the positive quiet one.
#pragma once

#include <cstdint>

#include "kernels/cuda/runtime.h"
#include "kernels/dtype.h"
#include "kernels/kv_wire.h"

namespace tessera::kernels::cuda {

struct KvWireParams {
  // [planes, kv_heads, slots, head_dim] of dtype; of i8 and f8, which go and come raw, head_dim is
  // KvRowElements (kernels/kv_rows.h).
  void* cache = nullptr;
  const int32_t* slots = nullptr;  // [tokens]
  unsigned char* wire = nullptr;   // KvPlanesBytes
  int64_t planes = 0, kv_heads = 0, tokens = 0, head_dim = 0;
  int64_t plane_stride = 0, head_stride = 0;  // elements
  bool values_first = false;
  KvWireCoding coding = KvWireCoding::kRaw;
  DType dtype = DType::kF32;
  DType wire_dtype = DType::kF32;  // raw, decoded
};

namespace TESSERA_CUDA_PLATFORM {

cudaError_t LaunchEncodeKv(const KvWireParams& params, cudaStream_t stream);
cudaError_t LaunchDecodeKv(const KvWireParams& params, cudaStream_t stream);

}  // namespace TESSERA_CUDA_PLATFORM
}  // namespace tessera::kernels::cuda
