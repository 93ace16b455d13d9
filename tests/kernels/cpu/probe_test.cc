#include "kernels/probe.h"

#include <catch2/catch.hpp>

#include "kernels/cpu/device/cpu_device.h"

namespace tessera::kernels {
namespace {

TEST_CASE("a probe measures rates that a machine can have") {
  auto device = CreateCpuDevice({.memory_bytes = 64 << 20,
                                 .isa = SupportedIsas(DetectCpuFeatures()).back(),
                                 .cores_shared = true});
  REQUIRE(device.ok());
  const auto rates =
      ProbeDevice(**device, {.buffer_bytes = 16 << 20, .matrix_size = 256, .rows = 64, .runs = 2});
  REQUIRE(rates.ok());
  for (double rate : {rates->read_bytes_per_second, rates->f32_flops_per_second,
                      rates->bf16_flops_per_second, rates->int8_flops_per_second}) {
    CHECK(rate > 1e6);
    CHECK(rate < 1e15);
  }
}

TEST_CASE("a small device is measured with what it has left") {
  for (const int64_t memory_bytes : {kMinProbeBytes, int64_t{11} << 20}) {
    INFO(memory_bytes);
    auto device = CreateCpuDevice({.memory_bytes = memory_bytes,
                                   .isa = SupportedIsas(DetectCpuFeatures()).back(),
                                   .cores_shared = true});
    REQUIRE(device.ok());
    const auto rates = ProbeDevice(**device);
    REQUIRE(rates.ok());
    CHECK(rates->read_buffer_bytes <= memory_bytes);
    CHECK(rates->read_buffer_bytes > memory_bytes / 4);
    CHECK(rates->bf16_flops_per_second > 1e6);
  }
}

TEST_CASE("a device without room for the probe says so") {
  auto device = CreateCpuDevice({.memory_bytes = kMinProbeBytes / 4, .cores_shared = true});
  REQUIRE(device.ok());
  CHECK(ProbeDevice(**device).status().code() == absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tessera::kernels
