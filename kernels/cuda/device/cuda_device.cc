#include "kernels/cuda/device/cuda_device.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "kernels/cuda/device/cuda_group_maker.h"
#include "kernels/cuda/device/cuda_health.h"
#include "kernels/cuda/device/cuda_ops.h"
#include "kernels/cuda/device/cuda_stream.h"
#include "kernels/cuda/device/pinned_memory.h"
#include "kernels/cuda/runtime.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

// Enough to read and convert weights as fast as they go over the bus, where the machine has them.
const int kHostThreads =
    static_cast<int>(std::clamp<unsigned>(std::thread::hardware_concurrency(), 1, 4));

std::unique_ptr<LaunchTuner> MakeTuner(const CudaDeviceOptions& options, CudaHealth* health) {
  if (options.tuning == nullptr) return nullptr;
  return std::make_unique<LaunchTuner>(options.index, health, options.tuning);
}

class CudaDevice final : public Device {
 public:
  CudaDevice(const CudaDeviceOptions& options, const std::string& name, std::string description,
             int capability, int multiprocessors, std::unique_ptr<BlasProducts> blas)
      : options_(options),
        description_(std::move(description)),
        health_(name, options.max_wait_seconds),
        ops_(&health_, options.index, {capability, multiprocessors, options.widened_bytes},
             std::move(blas), MakeTuner(options, &health_)),
        groups_(options, &health_) {}

  std::string Describe() const override {
    const std::string tuning = ops_.DescribeTuning();
    return tuning.empty() ? description_ : StrCat(description_, "; ", tuning);
  }
  int64_t memory_bytes() const override { return options_.memory_bytes; }
  int host_threads() const override { return kHostThreads; }
  Ops& ops() override { return ops_; }
  GroupMaker* group_maker() override { return &groups_; }
  absl::Status Lost() const override { return health_.lost(); }

  absl::StatusOr<Buffer> Allocate(int64_t size_bytes) override;
  absl::StatusOr<HostBuffer> AllocateHost(int64_t size_bytes) override;
  bool host_reads_memory() const override { return false; }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override {
    return CudaStream::Create(options_.index, &health_);
  }

 private:
  void Free(std::byte* data, int64_t size_bytes) override;
  absl::Status Exhausted(int64_t size_bytes, int64_t available_bytes) const;

  const CudaDeviceOptions options_;
  const std::string description_;
  CudaHealth health_;
  CudaOps ops_;
  CudaGroupMaker groups_;
  std::atomic<int64_t> used_bytes_{0};
};

absl::Status CudaDevice::Exhausted(int64_t size_bytes, int64_t available_bytes) const {
  return absl::ResourceExhaustedError(
      StrCat(health_.device(), ": asked for ", size_bytes, " bytes, available are ",
             available_bytes, " of ", options_.memory_bytes,
             "; give the device more memory, or a smaller model or KV pool"));
}

absl::StatusOr<Buffer> CudaDevice::Allocate(int64_t size_bytes) {
  if (size_bytes < 0) {
    return absl::InvalidArgumentError(
        StrCat(health_.device(), ": asked for ", size_bytes, " bytes"));
  }
  absl::Status status = health_.lost();
  if (!status.ok()) return status;
  int64_t used = used_bytes_.load();
  do {
    const int64_t available = options_.memory_bytes - used;
    if (size_bytes > available) return Exhausted(size_bytes, available);
  } while (!used_bytes_.compare_exchange_weak(used, used + size_bytes));
  status = health_.Check(cudaSetDevice(options_.index), "choosing the device");
  void* data = nullptr;
  // CUDA gives no address for no bytes.
  const auto asked = static_cast<size_t>(std::max<int64_t>(size_bytes, 1));
  const cudaError_t error = status.ok() ? cudaMalloc(&data, asked) : cudaSuccess;
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // or the next launch of this thread would return it
    size_t free_bytes = 0, total_bytes = 0;
    cudaMemGetInfo(&free_bytes, &total_bytes);
    status = Exhausted(size_bytes, static_cast<int64_t>(free_bytes));
  } else {
    status.Update(health_.Check(error, "Allocate"));
  }
  if (status.ok()) return Buffer(this, static_cast<std::byte*>(data), size_bytes);
  used_bytes_.fetch_sub(size_bytes);
  return status;
}

absl::StatusOr<HostBuffer> CudaDevice::AllocateHost(int64_t size_bytes) {
  if (size_bytes < 0) {
    return absl::InvalidArgumentError(
        StrCat(health_.device(), ": asked for ", size_bytes, " bytes of host memory"));
  }
  absl::Status status = health_.lost();
  if (status.ok()) status = health_.Check(cudaSetDevice(options_.index), "choosing the device");
  if (!status.ok()) return status;
  return PinMemory(size_bytes, health_, "staging");
}

void CudaDevice::Free(std::byte* data, int64_t size_bytes) {
  cudaFree(data);  // fails where the device is lost, and then nothing is left to free
  used_bytes_.fetch_sub(size_bytes);
}

// Makes it where there is a table. Returns what computes products of many rows.
std::string MakeBlas(const BlasTable* table, std::unique_ptr<BlasProducts>* blas) {
  if (table == nullptr) return "our GEMM";
  auto made = BlasProducts::Create(*table);
  if (!made.ok()) return StrCat("our GEMM (", std::string(made.status().message()), ")");
  *blas = *std::move(made);
  return "cuBLASLt";
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(const CudaDeviceOptions& options) {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess || options.index < 0 || options.index >= count) {
    return absl::NotFoundError(StrCat("CUDA device ", options.index, ": ",
                                      counted == cudaSuccess
                                          ? StrCat("there are ", count, ", counted from 0")
                                          : std::string(cudaGetErrorString(counted))));
  }
  const std::string name = StrCat(CudaOps::kPlatformName, ":", options.index);
  CudaHealth health(name, options.max_wait_seconds);
  cudaDeviceProp properties = {};
  size_t free_bytes = 0, total_bytes = 0;
  absl::Status status = health.Check(cudaSetDevice(options.index), "choosing the device");
  status.Update(
      health.Check(cudaGetDeviceProperties(&properties, options.index), "reading its properties"));
  if (status.ok()) {
    status = health.Check(cudaMemGetInfo(&free_bytes, &total_bytes), "reading its memory");
  }
  if (!status.ok()) return status;
  const auto total = static_cast<int64_t>(total_bytes);
  CudaDeviceOptions complete = options;
  if (complete.memory_bytes == 0) complete.memory_bytes = total;
  if (complete.memory_bytes < 0 || complete.memory_bytes > total) {
    return absl::InvalidArgumentError(
        StrCat(name, ": ", complete.memory_bytes, " bytes of memory; it has ", total));
  }
  std::unique_ptr<BlasProducts> blas;
  const std::string products = MakeBlas(options.blas, &blas);
  std::string description =
      StrCat(name, ", ", properties.name, ", capability ", properties.major, ".", properties.minor,
             ", ", properties.multiProcessorCount, " multiprocessors, ",
             complete.memory_bytes >> 20, " MiB, weights of 16, 8 and 4 bits by GEMV and ",
             products, ", attention of 16-bit KV on tensor cores, else plain kernels");
  return std::make_unique<CudaDevice>(complete, name, std::move(description),
                                      10 * properties.major + properties.minor,
                                      properties.multiProcessorCount, std::move(blas));
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
