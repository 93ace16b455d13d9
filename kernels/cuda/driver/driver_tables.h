// NVIDIA's driver (libcuda.so.1) and its management library (libnvidia-ml.so.1, NVML) as tables of
// typed functions: filled at run time, so that one program also runs where neither is installed,
// and by a fake in tests.
//
// The types are the libraries' ABI, declared here because a build without a toolkit has no cuda.h;
// driver_abi_test holds them against cuda.h where there is one. Thread rule: the tables are plain
// values; the libraries' functions are thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>

namespace tessera::kernels::cuda {

using CuResult = int;  // CUresult
using CuDevice = int;
using CuContext = struct CuContextHandle*;
struct CuUuid {
  unsigned char bytes[16];
};

inline constexpr CuResult kCuSuccess = 0;
inline constexpr CuResult kCuOutOfMemory = 2;
inline constexpr CuResult kCuDeviceUnavailable = 46;
inline constexpr CuResult kCuNoDevice = 100;

// CUdevice_attribute.
inline constexpr int kCuMultiprocessors = 16;
inline constexpr int kCuComputeMode = 20;
inline constexpr int kCuCapabilityMajor = 75;
inline constexpr int kCuCapabilityMinor = 76;
// Values of kCuComputeMode.
inline constexpr int kCuProhibited = 2;
inline constexpr int kCuExclusive = 3;

// Field, symbol in the library, type.
#define TESSERA_DRIVER_FUNCTIONS(X)                                                              \
  X(Init, "cuInit", CuResult(unsigned flags))                                                    \
  X(DriverGetVersion, "cuDriverGetVersion", CuResult(int* version))                              \
  X(GetErrorString, "cuGetErrorString", CuResult(CuResult error, const char** text))             \
  X(DeviceGetCount, "cuDeviceGetCount", CuResult(int* count))                                    \
  X(DeviceGet, "cuDeviceGet", CuResult(CuDevice* device, int index))                             \
  X(DeviceGetName, "cuDeviceGetName", CuResult(char* name, int length, CuDevice device))         \
  X(DeviceGetUuid, "cuDeviceGetUuid_v2", CuResult(CuUuid* uuid, CuDevice device))                \
  X(DeviceTotalMem, "cuDeviceTotalMem_v2", CuResult(size_t* bytes, CuDevice device))             \
  X(DeviceGetAttribute, "cuDeviceGetAttribute",                                                  \
    CuResult(int* value, int attribute, CuDevice device))                                        \
  X(DeviceGetPciBusId, "cuDeviceGetPCIBusId", CuResult(char* id, int length, CuDevice device))   \
  X(PrimaryCtxRetain, "cuDevicePrimaryCtxRetain", CuResult(CuContext* context, CuDevice device)) \
  X(PrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", CuResult(CuDevice device))                \
  X(CtxSetCurrent, "cuCtxSetCurrent", CuResult(CuContext context))                               \
  X(MemGetInfo, "cuMemGetInfo_v2", CuResult(size_t* free_bytes, size_t* total_bytes))

using NvmlResult = int;  // nvmlReturn_t
using NvmlDevice = struct NvmlDeviceHandle*;
struct NvmlMemory {
  unsigned long long total, free, used;  // bytes
};
// nvmlProcessInfo_v2_t.
struct NvmlProcess {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};

inline constexpr NvmlResult kNvmlSuccess = 0;

#define TESSERA_NVML_FUNCTIONS(X)                                                                  \
  X(Init, "nvmlInit_v2", NvmlResult())                                                             \
  X(SystemGetDriverVersion, "nvmlSystemGetDriverVersion",                                          \
    NvmlResult(char* version, unsigned length))                                                    \
  X(DeviceGetCount, "nvmlDeviceGetCount_v2", NvmlResult(unsigned* count))                          \
  X(DeviceGetHandleByIndex, "nvmlDeviceGetHandleByIndex_v2",                                       \
    NvmlResult(unsigned index, NvmlDevice* device))                                                \
  X(DeviceGetHandleByUuid, "nvmlDeviceGetHandleByUUID",                                            \
    NvmlResult(const char* uuid, NvmlDevice* device))                                              \
  X(DeviceGetUuid, "nvmlDeviceGetUUID",                                                            \
    NvmlResult(NvmlDevice device, char* uuid, unsigned length))                                    \
  X(DeviceGetName, "nvmlDeviceGetName",                                                            \
    NvmlResult(NvmlDevice device, char* name, unsigned length))                                    \
  X(DeviceGetCapability, "nvmlDeviceGetCudaComputeCapability",                                     \
    NvmlResult(NvmlDevice device, int* major, int* minor))                                         \
  X(DeviceGetMemory, "nvmlDeviceGetMemoryInfo", NvmlResult(NvmlDevice device, NvmlMemory* memory)) \
  X(DeviceGetProcesses, "nvmlDeviceGetComputeRunningProcesses_v3",                                 \
    NvmlResult(NvmlDevice device, unsigned* count, NvmlProcess* processes))                        \
  X(DeviceGetMaxMigCount, "nvmlDeviceGetMaxMigDeviceCount",                                        \
    NvmlResult(NvmlDevice device, unsigned* count))                                                \
  X(DeviceGetMigByIndex, "nvmlDeviceGetMigDeviceHandleByIndex",                                    \
    NvmlResult(NvmlDevice device, unsigned index, NvmlDevice* slice))

#define TESSERA_TABLE_FIELD(name, symbol, ...) std::add_pointer_t<__VA_ARGS__> name = nullptr;

struct DriverTable {
  TESSERA_DRIVER_FUNCTIONS(TESSERA_TABLE_FIELD)
};
struct NvmlTable {
  TESSERA_NVML_FUNCTIONS(TESSERA_TABLE_FIELD)
};

#undef TESSERA_TABLE_FIELD

struct DriverTables {
  std::optional<DriverTable> driver;
  std::string no_driver;          // why it is empty: the loader's words, or a missing function
  std::optional<NvmlTable> nvml;  // initialised; without it errors say less, and MIG slices beyond
                                  // the one that the driver shows are not listed
};

// From the libraries, which stay loaded. Where there are none, the tables are empty.
DriverTables OpenDriver();

}  // namespace tessera::kernels::cuda
