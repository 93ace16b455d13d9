// Our declarations of the driver's functions against NVIDIA's cuda.h.
#include <cuda.h>

#include <catch2/catch.hpp>
#include <string_view>

#include "kernels/cuda/driver/driver_tables.h"
#include "tests/kernels/cuda/driver/same_call.h"

namespace tessera::kernels::cuda {
namespace {

#define TESSERA_TEXT(name) TESSERA_LITERAL(name)
#define TESSERA_LITERAL(name) #name
// cuda.h maps a function's name to the symbol of its newest version.
#define TESSERA_CHECK(field, function)                                               \
  static_assert(SameCall<decltype(&function), decltype(DriverTable::field)>::value); \
  symbols_agree = symbols_agree && Symbol(#field) == TESSERA_TEXT(function);

std::string_view Symbol(std::string_view field) {
#define TESSERA_SYMBOL(name, symbol, ...) \
  if (field == #name) return symbol;
  TESSERA_DRIVER_FUNCTIONS(TESSERA_SYMBOL)
  return "";
}

}  // namespace

TEST_CASE("functions, numbers and symbols are those of cuda.h") {
  bool symbols_agree = true;
  TESSERA_CHECK(Init, cuInit)
  TESSERA_CHECK(DriverGetVersion, cuDriverGetVersion)
  TESSERA_CHECK(GetErrorString, cuGetErrorString)
  TESSERA_CHECK(DeviceGetCount, cuDeviceGetCount)
  TESSERA_CHECK(DeviceGet, cuDeviceGet)
  TESSERA_CHECK(DeviceGetName, cuDeviceGetName)
  TESSERA_CHECK(DeviceGetUuid, cuDeviceGetUuid)
  TESSERA_CHECK(DeviceTotalMem, cuDeviceTotalMem)
  TESSERA_CHECK(DeviceGetAttribute, cuDeviceGetAttribute)
  TESSERA_CHECK(DeviceGetPciBusId, cuDeviceGetPCIBusId)
  TESSERA_CHECK(PrimaryCtxRetain, cuDevicePrimaryCtxRetain)
  TESSERA_CHECK(PrimaryCtxRelease, cuDevicePrimaryCtxRelease)
  TESSERA_CHECK(CtxSetCurrent, cuCtxSetCurrent)
  TESSERA_CHECK(MemGetInfo, cuMemGetInfo)
  CHECK(symbols_agree);
  CHECK(sizeof(CuUuid) == sizeof(CUuuid));
  CHECK(kCuOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(kCuDeviceUnavailable == CUDA_ERROR_DEVICE_UNAVAILABLE);
  CHECK(kCuNoDevice == CUDA_ERROR_NO_DEVICE);
  CHECK(kCuMultiprocessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  CHECK(kCuComputeMode == CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
  CHECK(kCuCapabilityMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  CHECK(kCuCapabilityMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  CHECK(kCuProhibited == CU_COMPUTEMODE_PROHIBITED);
  CHECK(kCuExclusive == CU_COMPUTEMODE_EXCLUSIVE_PROCESS);
}

}  // namespace tessera::kernels::cuda
