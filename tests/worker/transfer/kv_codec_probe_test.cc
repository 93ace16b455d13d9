#include "worker/transfer/kv_codec_probe.h"

#include <catch2/catch.hpp>

#include "kernels/cpu/device/cpu_device.h"
#include "kernels/cuda/device/cuda_device.h"
#include "worker/transfer/staged_kv_coder.h"

namespace tessera::worker {
namespace {

TEST_CASE("the codec's rate is that of a processor") {
  kernels::CpuDeviceOptions options;
  options.memory_bytes = int64_t{64} << 20;
  auto device = kernels::CreateCpuDevice(options);
  REQUIRE(device.status().message() == "");
  const auto rate = ProbeKvCodecRate(**device, HostKvCoder(), {.runs = 2});
  REQUIRE(rate.status().message() == "");
  CHECK(*rate > 1e7);
  CHECK(*rate < 1e12);
}

TEST_CASE("a GPU's rate is that of its kernels and copies, and a failure is no rate") {
  auto device = kernels::cuda::emulated::CreateCudaDevice({.memory_bytes = int64_t{64} << 20});
  REQUIRE(device.status().message() == "");
  auto coder = StagedKvCoder::Create(device->get());
  REQUIRE(coder.status().message() == "");
  const auto rate = ProbeKvCodecRate(**device, **coder, {.buffer_bytes = 1 << 18, .runs = 1});
  REQUIRE(rate.status().message() == "");
  CHECK(*rate > 1e4);
  CHECK(*rate < 1e10);
  const auto rest = (*device)->Allocate((int64_t{64} << 20) - StagedKvCoder::kStagingBytes);
  REQUIRE(rest.status().message() == "");
  CHECK(absl::IsResourceExhausted(ProbeKvCodecRate(**device, **coder, {.runs = 1}).status()));
}

}  // namespace
}  // namespace tessera::worker
