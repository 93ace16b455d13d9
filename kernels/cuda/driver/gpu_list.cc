#include "kernels/cuda/driver/gpu_list.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda {
namespace {

constexpr std::string_view kPrefix = "cuda:";
constexpr std::string_view kSlice = "MIG-";
constexpr const char* kNeeds = "install NVIDIA's driver 580 or later";

std::string ErrorText(const DriverTable& driver, CuResult error) {
  const char* text = nullptr;
  if (driver.GetErrorString(error, &text) != kCuSuccess || text == nullptr) text = "unknown error";
  return StrCat(text, " (CUDA error ", error, ")");
}

std::string DottedVersion(int number, int minor_unit, int major_unit) {
  return StrCat(number / major_unit, ".", number % major_unit / minor_unit);
}

std::string UuidText(const CuUuid& uuid, bool slice) {
  std::string text(slice ? kSlice : "GPU-");
  for (int i = 0; i < 16; ++i) {
    std::array<char, 3> hex;
    std::snprintf(hex.data(), hex.size(), "%02x", unsigned{uuid.bytes[i]});
    text += hex.data();
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

std::string DriverVersion(const DriverTables& tables, int cuda_version) {
  std::array<char, 96> text = {};
  if (tables.nvml.has_value() &&
      tables.nvml->SystemGetDriverVersion(text.data(), text.size()) == kNvmlSuccess) {
    return text.data();
  }
  return StrCat("CUDA ", DottedVersion(cuda_version, 10, 1000));
}

// All of the machine, visible or not; 0 without NVML.
unsigned MachineGpus(const DriverTables& tables) {
  unsigned count = 0;
  if (tables.nvml.has_value()) tables.nvml->DeviceGetCount(&count);
  return count;
}

std::string NothingVisible(const DriverTables& tables, const char* visible) {
  const unsigned count = MachineGpus(tables);
  if (visible == nullptr) {
    return count == 0
               ? "the driver finds no GPU in this machine"
               : StrCat("the driver shows none of the ", count,
                        " GPUs of this machine to this process: in a container, give it the "
                        "GPUs (--gpus all); in MIG mode, make a slice (nvidia-smi mig -cgi)");
  }
  const std::string hides = StrCat("CUDA_VISIBLE_DEVICES=\"", visible, "\" leaves no GPU visible");
  const std::string of = count == 0 ? "" : StrCat(" of the ", count, " in this machine");
  return StrCat(hides, of, ": name them by index (0,1) or UUID (GPU-..., MIG-...), or unset it");
}

std::string Problem(const Gpu& gpu, int compute_mode) {
  if (gpu.capability < kMinNvidiaCapability) {
    return StrCat("its compute capability ", DottedVersion(gpu.capability, 1, 10),
                  " is below 7.5 (Turing), the oldest that Tessera's kernels run on");
  }
  if (compute_mode == kCuProhibited) {
    return "its compute mode forbids all use; nvidia-smi -c DEFAULT allows it";
  }
  return "";
}

// What the driver says of its GPU `index`.
CuResult Read(const DriverTable& driver, int index, Gpu* gpu) {
  CuDevice device = 0;
  std::array<char, 256> name = {};
  std::array<char, 32> bus_id = {};
  CuUuid uuid = {};
  size_t memory_bytes = 0;
  int major = 0, minor = 0, mode = 0;
  CuResult error = driver.DeviceGet(&device, index);
  const auto then = [&](auto call) {
    if (error == kCuSuccess) error = call();
  };
  then([&] { return driver.DeviceGetName(name.data(), name.size(), device); });
  then([&] { return driver.DeviceGetUuid(&uuid, device); });
  then([&] { return driver.DeviceTotalMem(&memory_bytes, device); });
  then([&] { return driver.DeviceGetPciBusId(bus_id.data(), bus_id.size(), device); });
  const std::pair<int, int*> attributes[] = {{kCuCapabilityMajor, &major},
                                             {kCuCapabilityMinor, &minor},
                                             {kCuMultiprocessors, &gpu->multiprocessors},
                                             {kCuComputeMode, &mode}};
  for (const auto& [attribute, value] : attributes) {
    then([&, &a = attribute, &v = value] { return driver.DeviceGetAttribute(v, a, device); });
  }
  gpu->index = index;
  gpu->device = StrCat(kPrefix, index);
  gpu->name = name.data();
  gpu->bus_id = bus_id.data();
  gpu->uuid = UuidText(uuid, gpu->name.find(" MIG ") != std::string::npos);
  gpu->capability = 10 * major + minor;
  gpu->memory_bytes = static_cast<int64_t>(memory_bytes);
  gpu->exclusive = mode == kCuExclusive;
  gpu->problem = Problem(*gpu, mode);
  return error;
}

// Whether CUDA_VISIBLE_DEVICES lets the slice through: it is not set, or names it.
bool IsNamed(std::string_view slice, const char* visible) {
  if (visible == nullptr) return true;
  std::string_view rest = visible;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view one = rest.substr(0, comma);
    if (one.starts_with(kSlice) && slice.starts_with(one)) return true;
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return false;
}

bool Describe(const NvmlTable& nvml, NvmlDevice parent, NvmlDevice slice, Gpu* gpu) {
  std::array<char, 96> uuid = {}, name = {};
  NvmlMemory memory = {};
  int major = 0, minor = 0;
  const bool read = nvml.DeviceGetUuid(slice, uuid.data(), uuid.size()) == kNvmlSuccess &&
                    nvml.DeviceGetName(slice, name.data(), name.size()) == kNvmlSuccess &&
                    nvml.DeviceGetMemory(slice, &memory) == kNvmlSuccess &&
                    nvml.DeviceGetCapability(parent, &major, &minor) == kNvmlSuccess;
  gpu->uuid = uuid.data();
  gpu->device = StrCat(kPrefix, gpu->uuid);
  gpu->name = name.data();
  gpu->capability = 10 * major + minor;
  gpu->memory_bytes = static_cast<int64_t>(memory.total);
  gpu->problem = Problem(*gpu, 0);
  return read;
}

// The driver shows a process one MIG slice at most; NVML knows them all.
void AddSlices(const NvmlTable& nvml, const char* visible, std::vector<Gpu>* gpus) {
  unsigned count = 0;
  if (nvml.DeviceGetCount(&count) != kNvmlSuccess) return;
  for (unsigned i = 0; i < count; ++i) {
    NvmlDevice parent = nullptr;
    unsigned slices = 0;
    if (nvml.DeviceGetHandleByIndex(i, &parent) != kNvmlSuccess ||
        nvml.DeviceGetMaxMigCount(parent, &slices) != kNvmlSuccess) {
      continue;
    }
    for (unsigned s = 0; s < slices; ++s) {
      NvmlDevice slice = nullptr;
      Gpu gpu;
      if (nvml.DeviceGetMigByIndex(parent, s, &slice) != kNvmlSuccess) continue;  // not in use
      if (!Describe(nvml, parent, slice, &gpu) || !IsNamed(gpu.uuid, visible)) continue;
      const auto same = [&](const Gpu& known) { return known.uuid == gpu.uuid; };
      if (std::none_of(gpus->begin(), gpus->end(), same)) gpus->push_back(std::move(gpu));
    }
  }
}

// "; processes 12 and 34 use it", where NVML knows.
std::string UsedBy(const DriverTables& tables, const Gpu& gpu) {
  NvmlDevice device = nullptr;
  std::array<NvmlProcess, 64> processes = {};
  unsigned count = processes.size();
  if (!tables.nvml.has_value() ||
      tables.nvml->DeviceGetHandleByUuid(gpu.uuid.c_str(), &device) != kNvmlSuccess ||
      tables.nvml->DeviceGetProcesses(device, &count, processes.data()) != kNvmlSuccess) {
    return "";
  }
  std::string pids;
  for (unsigned i = 0; i < std::min<unsigned>(count, processes.size()); ++i) {
    pids += StrCat(pids.empty() ? "" : ", ", processes[i].pid);
  }
  return pids.empty() ? "" : StrCat("; in use by process ", pids);
}

}  // namespace

GpuList ListGpus(const DriverTables& tables, const char* visible) {
  GpuList list;
  if (!tables.driver.has_value()) {
    list.no_gpus = StrCat("there is no NVIDIA driver (", tables.no_driver, "): ", kNeeds,
                          ", and in a container give it the GPUs (--gpus all)");
    return list;
  }
  const DriverTable& driver = *tables.driver;
  int version = 0, count = 0;
  CuResult error = driver.DriverGetVersion(&version);
  if (error == kCuSuccess) {
    list.driver_version = DriverVersion(tables, version);
    if (version < kMinCudaVersion) {
      list.no_gpus = StrCat("the NVIDIA driver ", list.driver_version, " (for CUDA ",
                            DottedVersion(version, 10, 1000), ") is older than 580: ", kNeeds);
      return list;
    }
    // CUDA reads it here: kernels are loaded, and compiled where there is PTX alone, when a device
    // is made, and not within the first launch, which has a bound. A user's own setting stays.
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    error = driver.Init(0);
  }
  if (error == kCuSuccess) error = driver.DeviceGetCount(&count);
  for (int i = 0; i < count && error == kCuSuccess; ++i) {
    Gpu gpu;
    error = Read(driver, i, &gpu);
    list.gpus.push_back(std::move(gpu));
  }
  if (error != kCuSuccess && error != kCuNoDevice) {
    list.gpus.clear();
    list.no_gpus = StrCat("the NVIDIA driver ", list.driver_version,
                          " does not work: ", ErrorText(driver, error), "; see nvidia-smi");
    return list;
  }
  if (tables.nvml.has_value()) AddSlices(*tables.nvml, visible, &list.gpus);
  if (list.gpus.empty()) list.no_gpus = NothingVisible(tables, visible);
  return list;
}

absl::StatusOr<Gpu> FindGpu(const GpuList& list, std::string_view device) {
  if (list.gpus.empty()) {
    return absl::NotFoundError(StrCat(device, ": no GPU can be used: ", list.no_gpus));
  }
  const std::string_view wanted =
      device.starts_with(kPrefix) ? device.substr(kPrefix.size()) : device;
  int index = -1;
  const auto parsed = std::from_chars(wanted.data(), wanted.data() + wanted.size(), index);
  const bool by_index = parsed.ptr == wanted.data() + wanted.size() && !wanted.empty();
  const Gpu* found = nullptr;
  std::string there;
  for (const Gpu& gpu : list.gpus) {
    there += StrCat(there.empty() ? "" : ", ", gpu.device, " (", gpu.name, ", ", gpu.uuid, ")");
    const bool is_it = by_index ? gpu.index == index
                                : wanted.size() > kSlice.size() && gpu.uuid.starts_with(wanted);
    if (!is_it) continue;
    if (found != nullptr) {
      return absl::InvalidArgumentError(
          StrCat(device, ": both ", found->uuid, " and ", gpu.uuid, " begin so; give more of it"));
    }
    found = &gpu;
  }
  if (found == nullptr) {
    return absl::NotFoundError(StrCat(device, ": there is no such GPU; there are: ", there));
  }
  if (!found->problem.empty()) {
    return absl::FailedPreconditionError(
        StrCat(device, " (", found->name, ") cannot be used: ", found->problem));
  }
  return *found;
}

absl::StatusOr<std::string> VisibleSlice(std::string_view device, const char* visible) {
  if (!device.starts_with(kPrefix)) return std::string();
  const std::string_view slice = device.substr(kPrefix.size());
  if (!slice.starts_with(kSlice)) return std::string();
  if (IsNamed(slice, visible)) return std::string(slice);
  return absl::InvalidArgumentError(
      StrCat(device, ": CUDA_VISIBLE_DEVICES=\"", visible, "\" leaves this slice out"));
}

absl::StatusOr<GpuMemory> TakeGpu(const DriverTables& tables, const Gpu& gpu) {
  const DriverTable& driver = *tables.driver;
  const std::string name = StrCat(gpu.device, " (", gpu.name, ")");
  CuDevice device = 0;
  CuContext context = nullptr;
  size_t free_bytes = 0, total_bytes = 0;
  CuResult error = driver.DeviceGet(&device, gpu.index);
  if (error == kCuSuccess) error = driver.PrimaryCtxRetain(&context, device);
  if (error == kCuSuccess) error = driver.CtxSetCurrent(context);
  if (error == kCuSuccess) error = driver.MemGetInfo(&free_bytes, &total_bytes);
  if (error == kCuSuccess) {
    return GpuMemory{static_cast<int64_t>(free_bytes), static_cast<int64_t>(total_bytes)};
  }
  if (context != nullptr) driver.PrimaryCtxRelease(device);
  if (error == kCuDeviceUnavailable) {
    return absl::FailedPreconditionError(
        StrCat(name, " is taken",
               gpu.exclusive ? ": its compute mode lets one process use it at a time" : "",
               UsedBy(tables, gpu),
               ": end that process, choose another GPU, or share it with "
               "nvidia-smi -c DEFAULT"));
  }
  if (error == kCuOutOfMemory) {
    return absl::ResourceExhaustedError(StrCat(name, " has no memory left for a process",
                                               UsedBy(tables, gpu),
                                               ": end one that uses it, or choose another GPU"));
  }
  return absl::UnavailableError(StrCat(name, ": ", ErrorText(driver, error)));
}

absl::StatusOr<int64_t> UsableBytes(const Gpu& gpu, const GpuMemory& memory, double utilization) {
  const auto share = static_cast<int64_t>(static_cast<double>(memory.total_bytes) * utilization);
  const int64_t others = memory.total_bytes - memory.free_bytes;
  if (share > others) return share - others;
  return absl::ResourceExhaustedError(
      StrCat(gpu.device, " (", gpu.name, "): --gpu-memory-utilization ", utilization, " of its ",
             memory.total_bytes >> 20, " MiB is ", share >> 20, " MiB, and others use ",
             others >> 20, " MiB already: end them, choose another GPU, or raise the share"));
}

}  // namespace tessera::kernels::cuda
