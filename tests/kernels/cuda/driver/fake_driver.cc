#include "tests/kernels/cuda/driver/fake_driver.h"

#include <algorithm>
#include <cstring>

namespace tessera::tests {
namespace {

using namespace kernels::cuda;

FakeMachine* machine = nullptr;
int current = 0;  // whose context is current

void Put(const std::string& text, char* to, size_t length) {
  std::strncpy(to, text.c_str(), length - 1);
  to[length - 1] = 0;
}

NvmlDevice Handle(size_t index) { return reinterpret_cast<NvmlDevice>(index + 1); }
size_t Index(NvmlDevice handle) { return reinterpret_cast<size_t>(handle) - 1; }
constexpr size_t kFirstSlice = 100;

std::string UuidOf(const FakeGpu& gpu) {
  std::string text = "GPU-";
  constexpr char kDigits[] = "0123456789abcdef";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += {kDigits[gpu.uuid_byte >> 4], kDigits[gpu.uuid_byte & 15]};
  }
  return text;
}

DriverTable Driver() {
  DriverTable t;
  t.Init = [](unsigned) {
    return machine->gpus.empty() && machine->init_error == 0 ? kCuNoDevice : machine->init_error;
  };
  t.DriverGetVersion = [](int* version) { return *version = machine->cuda_version, 0; };
  t.GetErrorString = [](CuResult, const char** text) { return *text = "the fake's error", 0; };
  t.DeviceGetCount = [](int* count) { return *count = static_cast<int>(machine->gpus.size()), 0; };
  t.DeviceGet = [](CuDevice* device, int index) { return *device = index, 0; };
  t.DeviceGetName = [](char* name, int length, CuDevice device) {
    return Put(machine->gpus[device].name, name, length), 0;
  };
  t.DeviceGetUuid = [](CuUuid* uuid, CuDevice device) {
    return std::memset(uuid, machine->gpus[device].uuid_byte, sizeof *uuid), 0;
  };
  t.DeviceTotalMem = [](size_t* bytes, CuDevice device) {
    return *bytes = machine->gpus[device].memory_bytes, 0;
  };
  t.DeviceGetAttribute = [](int* value, int attribute, CuDevice device) {
    const FakeGpu& gpu = machine->gpus[device];
    switch (attribute) {
      case kCuCapabilityMajor: *value = gpu.capability / 10; break;
      case kCuCapabilityMinor: *value = gpu.capability % 10; break;
      case kCuMultiprocessors: *value = 84; break;
      case kCuComputeMode: *value = gpu.compute_mode; break;
      default: return 1;
    }
    return 0;
  };
  t.DeviceGetPciBusId = [](char* id, int length, CuDevice device) {
    return Put("0000:4" + std::to_string(device) + ":00.0", id, length), 0;
  };
  t.PrimaryCtxRetain = [](CuContext* context, CuDevice device) {
    if (const CuResult error = machine->gpus[device].take_error; error != 0) return error;
    ++machine->taken;
    *context = reinterpret_cast<CuContext>(static_cast<size_t>(device) + 1);
    return 0;
  };
  t.PrimaryCtxRelease = [](CuDevice) { return --machine->taken, 0; };
  t.CtxSetCurrent = [](CuContext context) {
    return current = static_cast<int>(reinterpret_cast<size_t>(context)) - 1, 0;
  };
  t.MemGetInfo = [](size_t* free_bytes, size_t* total_bytes) {
    *free_bytes = machine->gpus[current].free_bytes;
    *total_bytes = machine->gpus[current].memory_bytes;
    return 0;
  };
  return t;
}

NvmlTable Nvml() {
  NvmlTable t;
  t.Init = [] { return 0; };
  t.SystemGetDriverVersion = [](char* version, unsigned length) {
    return Put(machine->driver_version, version, length), 0;
  };
  t.DeviceGetCount = [](unsigned* count) {
    const auto shown = static_cast<unsigned>(machine->gpus.size());
    return *count = machine->machine_gpus > 0 ? machine->machine_gpus : shown, 0;
  };
  t.DeviceGetHandleByIndex = [](unsigned index, NvmlDevice* device) {
    return *device = Handle(index), 0;
  };
  t.DeviceGetHandleByUuid = [](const char* uuid, NvmlDevice* device) {
    for (size_t i = 0; i < machine->gpus.size(); ++i) {
      if (UuidOf(machine->gpus[i]) == uuid) return *device = Handle(i), 0;
    }
    return 6;  // not found
  };
  t.DeviceGetUuid = [](NvmlDevice device, char* uuid, unsigned length) {
    return Put(machine->slices[Index(device) - kFirstSlice].uuid, uuid, length), 0;
  };
  t.DeviceGetName = [](NvmlDevice device, char* name, unsigned length) {
    return Put(machine->slices[Index(device) - kFirstSlice].name, name, length), 0;
  };
  t.DeviceGetCapability = [](NvmlDevice, int* major, int* minor) {
    return *major = 8, *minor = 0, 0;
  };
  t.DeviceGetMemory = [](NvmlDevice device, NvmlMemory* memory) {
    memory->total = machine->slices[Index(device) - kFirstSlice].memory_bytes;
    return 0;
  };
  t.DeviceGetProcesses = [](NvmlDevice device, unsigned* count, NvmlProcess* processes) {
    const std::vector<unsigned>& pids = machine->gpus[Index(device)].processes;
    *count = std::min<unsigned>(*count, pids.size());
    for (unsigned i = 0; i < *count; ++i) processes[i].pid = pids[i];
    return 0;
  };
  t.DeviceGetMaxMigCount = [](NvmlDevice device, unsigned* count) {
    // Of one more than there are, as slots may be empty.
    const bool sliced = Index(device) == 0 && !machine->slices.empty();
    return *count = sliced ? static_cast<unsigned>(machine->slices.size()) + 1 : 0, 0;
  };
  t.DeviceGetMigByIndex = [](NvmlDevice, unsigned index, NvmlDevice* slice) {
    if (index >= machine->slices.size()) return 6;
    return *slice = Handle(kFirstSlice + index), 0;
  };
  return t;
}

}  // namespace

DriverTables TablesOf(FakeMachine* described) {
  machine = described;
  DriverTables tables;
  if (described->has_driver)
    tables.driver = Driver();
  else
    tables.no_driver = "libcuda.so.1: cannot open shared object file";
  if (described->has_nvml) tables.nvml = Nvml();
  return tables;
}

}  // namespace tessera::tests
