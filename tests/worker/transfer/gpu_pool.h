// A pool of the emulated GPU's, with random elements, and what of its worker moves KV.
#pragma once

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/emulation/runtime.h"
#include "kvcache/kv_layout.h"
#include "worker/transfer/staged_kv_coder.h"

namespace tessera::worker {

// The emulated GPU, and a pool of it of which the host has a copy.
class GpuPool {
 public:
  explicit GpuPool(const kvcache::KvPool& shape,
                   kernels::cuda::CudaDeviceOptions options = kernels::cuda::CudaDeviceOptions())
      : pool(shape) {
    kernels::cuda::emulated::Inject({});
    options.memory_bytes = int64_t{256} << 20;
    auto created = kernels::cuda::emulated::CreateCudaDevice(options);
    REQUIRE(created.status().message() == "");
    device = *std::move(created);
    auto made = StagedKvCoder::Create(device.get());
    REQUIRE(made.status().message() == "");
    coder = *std::move(made);
    auto allocated = device->Allocate(pool.bytes());
    REQUIRE(allocated.ok());
    memory_ = *std::move(allocated);
    pool.memory = memory_.data();
    stream_ = *device->CreateStream();
    std::mt19937 random(1);
    values.resize(static_cast<size_t>(pool.bytes()));
    for (size_t i = 0; i + 1 < values.size(); i += 2) {  // 16-bit floats, and f32 of two of them
      const auto bits = static_cast<uint16_t>(0x3000 + random() % 0x1000);
      std::memcpy(values.data() + i, &bits, sizeof bits);
    }
    Write(values);
  }
  ~GpuPool() { kernels::cuda::emulated::Inject({}); }

  void Write(const std::vector<std::byte>& bytes) {
    REQUIRE(stream_->CopyToDevice(pool.memory, bytes.data(), pool.bytes()).ok());
    REQUIRE(stream_->Synchronize().message() == "");
  }
  std::vector<std::byte> Read() { return Read({pool.memory, static_cast<size_t>(pool.bytes())}); }
  std::vector<std::byte> Read(std::span<const std::byte> device) {
    std::vector<std::byte> bytes(device.size());
    REQUIRE(stream_->CopyToHost(bytes.data(), device.data(), std::ssize(device)).ok());
    REQUIRE(stream_->Synchronize().message() == "");
    return bytes;
  }
  // The same pool in the host's memory.
  static kvcache::KvPool Over(const kvcache::KvPool& pool, std::vector<std::byte>& bytes) {
    kvcache::KvPool host = pool;
    host.memory = bytes.data();
    return host;
  }

  std::unique_ptr<kernels::Device> device;
  std::unique_ptr<StagedKvCoder> coder;
  kvcache::KvPool pool;
  std::vector<std::byte> values;  // that it began with

 private:
  kernels::Buffer memory_;
  std::unique_ptr<kernels::Stream> stream_;
};

}  // namespace tessera::worker
