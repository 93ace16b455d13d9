#include "worker/devices/cuda/cuda_devices.h"

#include <cstdlib>
#include <utility>

#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/driver/blas_table.h"
#include "kernels/cuda/driver/nccl_table.h"
#include "third_party/absl/str_cat.h"
#include "third_party/linux/pci_device.h"
#include "third_party/spdlog/log.h"
#include "worker/devices/cuda/device_tuning.h"
#include "worker/devices/cuda/gpu_kind.h"

namespace tessera::worker {
namespace {

using kernels::cuda::CudaDeviceOptions;

constexpr std::string_view kPrefix = "cuda:";
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

// Facts for a registration: all but what is measured, and the share of its memory and of the cores.
v1::DeviceInfo Describe(const kernels::cuda::Gpu& gpu, const std::string& driver_version) {
  v1::DeviceInfo info;
  info.set_kind(KindOfGpu(gpu.name, gpu.memory_bytes));
  info.set_gpu_name(gpu.name);
  info.set_uuid(gpu.uuid);
  info.set_compute_capability(StrCat(gpu.capability / 10, ".", gpu.capability % 10));
  info.set_driver_version(driver_version);
  info.set_memory_bytes(gpu.memory_bytes);
  info.add_data_types(v1::DATA_TYPE_FLOAT32);
  info.add_data_types(v1::DATA_TYPE_FLOAT16);
  // Turing has no arithmetic in bfloat16: such checkpoints compute in float16 there.
  if (gpu.capability >= 80) info.add_data_types(v1::DATA_TYPE_BFLOAT16);
  info.add_data_types(v1::DATA_TYPE_INT8);
  return info;
}

void List(v1::DeviceList* list) {
  AppendGpus(kernels::cuda::ListGpus(kernels::cuda::OpenDriver(), std::getenv(kVisible)),
             BuildProblem(), list);
}

// Without a table kernels of our own compute.
kernels::cuda::OpenedBlas OpenBlasFor(const std::string& device) {
  kernels::cuda::OpenedBlas blas = kernels::cuda::OpenBlas();
  if (blas.table.has_value()) {
    Logger("worker").info("{}: dense products of 5 rows or more by cuBLASLt {} ({})", device,
                          blas.version, blas.file);
  } else {
    Logger("worker").warn(
        "{}: there is no cuBLASLt 13 ({}): kernels of our own compute its dense products; "
        "deploy/install_cuda --runtime fetches it, CUDA_HOME or LD_LIBRARY_PATH say where it is",
        device, blas.no_blas);
  }
  return blas;
}

// Beside DeviceType's: see FindGpu and TakeGpu of kernels/cuda/driver. Without --memory the device
// may use --gpu-memory-utilization of the GPU's, less what others use.
absl::StatusOr<OpenedDevice> Open(const DeviceFlags& flags, const DeviceShare& /*share*/) {
  const std::string& device = flags.name;
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
  int64_t memory_bytes = flags.memory_bytes;
  if (memory_bytes == 0) {
    const auto usable = kernels::cuda::UsableBytes(*gpu, *memory, flags.gpu_memory_utilization);
    if (!usable.ok()) return usable.status();
    memory_bytes = *usable;
  }
  const kernels::cuda::OpenedBlas blas = OpenBlasFor(device);
  const kernels::cuda::OpenedNccl nccl = OpenNcclFor(device, gpu->uuid);
  const auto tuning = OpenTuning(
      flags, gpu->uuid, StrCat("driver ", list.driver_version, ", cuBLASLt ", blas.version),
      kernels::UsualTuningFolder());
  auto made = Create({.index = gpu->index,
                      .memory_bytes = memory_bytes,
                      .blas = blas.table.has_value() ? &*blas.table : nullptr,
                      .nccl = nccl.table.has_value() ? &*nccl.table : nullptr,
                      .nccl_version = nccl.version,
                      .maps_sums = flags.mapped_sums,
                      .uuid = gpu->uuid,
                      .tuning = tuning});
  if (!made.ok()) return made.status();
  OpenedDevice opened;
  opened.device = *std::move(made);
  opened.info = Describe(*gpu, list.driver_version);
  opened.info.set_kernel_path(blas.table.has_value() ? "cublaslt" : "mma");
  opened.near_cores = CoresNearPciDevice(gpu->bus_id);
  opened.look = opened.probe = kernels::kGpuProbe;
  opened.tuning = tuning;
  return opened;
}

}  // namespace

const DeviceType kCudaDevices = {
    .name = kPrefix,
    .text = "cuda:0 or cuda:UUID, a GPU of --list-devices",
    .has_own_memory = true,
    .takes = [](std::string_view device) { return device.size() > kPrefix.size(); },
    .list = &List,
    .open = &Open};

void AppendGpus(const kernels::cuda::GpuList& gpus, const std::string& build_problem,
                v1::DeviceList* list, const std::string& root) {
  if (!gpus.driver_version.empty()) list->set_driver_version(gpus.driver_version);
  if (!gpus.no_gpus.empty()) {
    const std::string_view before = list->no_devices().empty() ? "" : "; ";
    list->set_no_devices(StrCat(list->no_devices(), before, gpus.no_gpus));
  }
  for (const kernels::cuda::Gpu& gpu : gpus.gpus) {
    v1::ListedDevice* device = list->add_devices();
    device->set_device(gpu.device);
    *device->mutable_info() = Describe(gpu, gpus.driver_version);
    device->set_problem(gpu.problem.empty() ? build_problem : gpu.problem);
    for (const int core : CoresNearPciDevice(gpu.bus_id, root)) device->add_near_cores(core);
  }
}

}  // namespace tessera::worker
