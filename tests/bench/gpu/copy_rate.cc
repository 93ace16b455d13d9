#include "tests/bench/gpu/copy_rate.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "kernels/cuda/runtime.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

constexpr int kRuns = 5;
constexpr int kCopiesInRun = 10;

absl::Status Checked(cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(StrCat("copying on the device: ", cudaGetErrorString(error)));
}

absl::StatusOr<double> BestRate(std::byte* memory, int64_t size_bytes, cudaStream_t stream) {
  const auto size = static_cast<size_t>(size_bytes);
  const std::vector<std::byte> zeros(size);
  absl::Status status = Checked(cudaMemcpy(memory, zeros.data(), size, cudaMemcpyHostToDevice));
  double best = 0;
  for (int run = 0; run <= kRuns; ++run) {  // the first warms up
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; status.ok() && i < kCopiesInRun; ++i) {
      status =
          Checked(cudaMemcpyAsync(memory + size, memory, size, cudaMemcpyDeviceToDevice, stream));
    }
    if (status.ok()) status = Checked(cudaStreamSynchronize(stream));
    if (!status.ok()) return status;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    const double rate = 2.0 * kCopiesInRun * static_cast<double>(size_bytes) / seconds.count();
    if (run > 0) best = std::max(best, rate);
  }
  return best;
}

}  // namespace

absl::StatusOr<double> CopyRate(int index, int64_t size_bytes) {
  if (absl::Status status = Checked(cudaSetDevice(index)); !status.ok()) return status;
  void* memory = nullptr;
  absl::Status status = Checked(cudaMalloc(&memory, static_cast<size_t>(2 * size_bytes)));
  if (!status.ok()) return status;
  cudaStream_t stream = nullptr;
  status = Checked(cudaStreamCreate(&stream));
  double rate = 0;
  if (status.ok()) {
    const auto measured = BestRate(static_cast<std::byte*>(memory), size_bytes, stream);
    status = measured.status();
    if (measured.ok()) rate = *measured;
    cudaStreamDestroy(stream);
  }
  cudaFree(memory);
  if (!status.ok()) return status;
  return rate;
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
