#include "worker/gpu_device.h"

#include <cstdlib>
#include <utility>

#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/driver/blas_table.h"
#include "kernels/cuda/driver/gpu_list.h"
#include "kernels/cuda/driver/nccl_table.h"
#include "third_party/absl/str_cat.h"
#include "third_party/linux/pci_device.h"
#include "third_party/spdlog/log.h"
#include "worker/device_list.h"

namespace tessera::worker {
namespace {

using kernels::cuda::CudaDeviceOptions;

constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";

#ifdef TESSERA_WITH_CUDA
std::string BuildProblem() { return ""; }
absl::StatusOr<std::unique_ptr<kernels::Device>> Create(const CudaDeviceOptions& options) {
  return kernels::cuda::gpu::CreateCudaDevice(options);
}
#else
std::string BuildProblem() {
  return "this tessera-worker was built without a CUDA toolkit: run deploy/install_cuda and build "
         "again";
}
absl::StatusOr<std::unique_ptr<kernels::Device>> Create(const CudaDeviceOptions&) {
  return absl::UnimplementedError(BuildProblem());
}
#endif

// Empty for a slice of a GPU: NCCL takes whole ones.
kernels::cuda::OpenedNccl OpenNcclFor(const std::string& device, const std::string& uuid) {
  if (uuid.starts_with("MIG-")) return {};
  kernels::cuda::OpenedNccl nccl = kernels::cuda::OpenNccl();
  if (nccl.table.has_value()) {
    Logger("worker").info("{}: values go to other GPUs by NCCL {} ({})", device, nccl.version,
                          nccl.file);
  } else {
    Logger("worker").info(
        "{}: there is no NCCL ({}): values go to other GPUs through the host; "
        "deploy/install_cuda --runtime fetches it, CUDA_HOME or LD_LIBRARY_PATH say where it is",
        device, nccl.no_nccl);
  }
  return nccl;
}

}  // namespace

v1::DeviceList ListDevices() {
  return MakeDeviceList(kernels::cuda::ListGpus(kernels::cuda::OpenDriver(), std::getenv(kVisible)),
                        BuildProblem());
}

absl::StatusOr<OpenedGpu> OpenGpu(const std::string& device, int64_t memory_bytes,
                                  double utilization) {
  const auto slice = kernels::cuda::VisibleSlice(device, std::getenv(kVisible));
  if (!slice.ok()) return slice.status();
  if (!slice->empty()) setenv(kVisible, slice->c_str(), 1);
  const kernels::cuda::DriverTables tables = kernels::cuda::OpenDriver();
  const auto list = kernels::cuda::ListGpus(tables, std::getenv(kVisible));
  const auto gpu = kernels::cuda::FindGpu(list, device);
  if (!gpu.ok()) return gpu.status();
  if (!BuildProblem().empty()) {
    return absl::FailedPreconditionError(StrCat(device, ": ", BuildProblem()));
  }
  const auto memory = kernels::cuda::TakeGpu(tables, *gpu);
  if (!memory.ok()) return memory.status();
  if (memory_bytes == 0) {
    const auto usable = kernels::cuda::UsableBytes(*gpu, *memory, utilization);
    if (!usable.ok()) return usable.status();
    memory_bytes = *usable;
  }
  const kernels::cuda::OpenedBlas blas = kernels::cuda::OpenBlas();
  const bool found = blas.table.has_value();
  if (found) {
    Logger("worker").info("{}: dense products of 5 rows or more by cuBLASLt {} ({})", device,
                          blas.version, blas.file);
  } else {
    Logger("worker").warn(
        "{}: there is no cuBLASLt 13 ({}): kernels of our own compute its dense products; "
        "deploy/install_cuda --runtime fetches it, CUDA_HOME or LD_LIBRARY_PATH say where it is",
        device, blas.no_blas);
  }
  const kernels::cuda::OpenedNccl nccl = OpenNcclFor(device, gpu->uuid);
  auto made = Create({.index = gpu->index,
                      .memory_bytes = memory_bytes,
                      .blas = found ? &*blas.table : nullptr,
                      .nccl = nccl.table.has_value() ? &*nccl.table : nullptr,
                      .nccl_version = nccl.version,
                      .uuid = gpu->uuid});
  if (!made.ok()) return made.status();
  return OpenedGpu{*std::move(made), DescribeGpu(*gpu, list.driver_version),
                   CoresNearPciDevice(gpu->bus_id), found ? "cublaslt" : "mma"};
}

}  // namespace tessera::worker
