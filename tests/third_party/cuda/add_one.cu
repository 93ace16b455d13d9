#include <cuda_runtime.h>

#include "tests/third_party/cuda/add_one.h"

namespace tessera::tests {
namespace {

__global__ void AddOneKernel(float* values, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) values[i] += 1.0f;
}

}  // namespace

bool HasCudaDevice() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

int AddOne(float* values, int count) {
  const size_t bytes = static_cast<size_t>(count) * sizeof(float);
  float* on_device = nullptr;
  cudaError_t error = cudaMalloc(&on_device, bytes);
  if (error != cudaSuccess) return error;
  error = cudaMemcpy(on_device, values, bytes, cudaMemcpyHostToDevice);
  if (error == cudaSuccess) {
    AddOneKernel<<<(count + 127) / 128, 128>>>(on_device, count);
    error = cudaGetLastError();
  }
  if (error == cudaSuccess) {
    error = cudaMemcpy(values, on_device, bytes, cudaMemcpyDeviceToHost);
  }
  const cudaError_t freed = cudaFree(on_device);
  return error != cudaSuccess ? error : freed;
}

}  // namespace tessera::tests
