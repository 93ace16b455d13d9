#include "kernels/probe.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cpu/device/cpu_device.h"
#include "tests/fakes/forwarding_ops.h"

namespace tessera::kernels {
namespace {

// Every second linear takes 9 ms, the others 1 ms: as where another worker takes the cores in turn.
class UnevenOps final : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;

  absl::Status Linear(const LinearArgs&, Stream&) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(++calls_ % 2 == 0 ? 9 : 1));
    return absl::OkStatus();
  }

 private:
  int calls_ = 0;
};

class UnevenDevice final : public Device {
 public:
  explicit UnevenDevice(std::unique_ptr<Device> device)
      : device_(std::move(device)), ops_(&device_->ops()) {}

  std::string Describe() const override { return device_->Describe(); }
  int64_t memory_bytes() const override { return device_->memory_bytes(); }
  int host_threads() const override { return device_->host_threads(); }
  absl::StatusOr<Buffer> Allocate(int64_t size_bytes) override {
    return device_->Allocate(size_bytes);
  }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override {
    return device_->CreateStream();
  }
  Ops& ops() override { return ops_; }

 private:
  void Free(std::byte*, int64_t) override {}  // buffers are the inner device's

  const std::unique_ptr<Device> device_;
  UnevenOps ops_;
};

TEST_CASE("a probe measures rates that a machine can have") {
  auto device = CreateCpuDevice({.memory_bytes = 64 << 20,
                                 .isa = SupportedIsas(DetectCpuFeatures()).back(),
                                 .cores_shared = true});
  REQUIRE(device.ok());
  const bool reads_weights = GENERATE(false, true);
  const auto rates = ProbeDevice(**device, {.buffer_bytes = 16 << 20,
                                            .reads_weights = reads_weights,
                                            .matrix_size = 256,
                                            .rows = 64,
                                            .runs = 2,
                                            .products = true});
  REQUIRE(rates.ok());
  for (double rate : {rates->read_bytes_per_second, rates->f32_flops_per_second,
                      rates->bf16_flops_per_second, rates->int8_flops_per_second}) {
    CHECK(rate > 1e6);
    CHECK(rate < 1e15);
  }
  // Every type that the device keeps so, e2m1 as int8, with few rows and with all.
  std::map<std::string, std::vector<int64_t>> products;
  for (const ProductRate& product : rates->products) {
    CHECK(product.read_bytes_per_second > 1e4);
    CHECK(product.read_bytes_per_second < 1e13);
    products[std::string(product.weights)].push_back(product.rows);
  }
  const std::vector<int64_t> rows = {1, 8, 64};
  CHECK(products == std::map<std::string, std::vector<int64_t>>{
                        {"bfloat16", rows}, {"int8", rows}, {"int4", rows}, {"fp8", rows}});
}

TEST_CASE("in windows rates are means, and so much time passes") {
  auto cpu = CreateCpuDevice({.memory_bytes = 64 << 20, .cores_shared = true});
  REQUIRE(cpu.ok());
  UnevenDevice device(*std::move(cpu));
  ProbeOptions options = {
      .buffer_bytes = 1 << 20, .matrix_size = 128, .rows = 8, .runs = 4, .products = true};
  const auto best = ProbeDevice(device, options);
  REQUIRE(best.ok());
  options.window_seconds = 0.4;
  const auto before = std::chrono::steady_clock::now();
  const auto mean = ProbeDevice(device, options);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - before;
  REQUIRE(mean.ok());
  CHECK(seconds.count() >=
        (4 + static_cast<double>(mean->products.size()) / 4) * options.window_seconds);
  CHECK(mean->read_bytes_per_second > 1e6);
  // A fifth, if the machine has no other work.
  CHECK(mean->bf16_flops_per_second < best->bf16_flops_per_second / 2);
  CHECK(mean->int8_flops_per_second < best->int8_flops_per_second / 2);
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
