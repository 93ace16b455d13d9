#include "kernels/cpu/device/cpu_device.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "third_party/linux/cpu_share.h"

namespace tessera::kernels {
namespace {

std::unique_ptr<Device> MakeDevice(int64_t memory_bytes) {
  auto device = CreateCpuDevice({.memory_bytes = memory_bytes, .cores_shared = true});
  REQUIRE(device.ok());
  return *std::move(device);
}

TEST_CASE("memory is accounted, and refused with both numbers") {
  auto device = MakeDevice(10'000'000);
  CHECK(device->memory_bytes() == 10'000'000);
  auto first = device->Allocate(6'000'000);
  REQUIRE(first.ok());
  const absl::Status status = device->Allocate(5'000'000).status();
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  const std::string message(status.message());
  CHECK(message.find("5000000") != std::string::npos);
  CHECK(message.find("4000000") != std::string::npos);
  *first = Buffer();
  CHECK(device->Allocate(10'000'000).ok());
  CHECK(device->Allocate(-1).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("buffers of any size are aligned and writable to the last byte") {
  auto device = MakeDevice(64 << 20);
  for (int64_t size : {0, 1, 63, 4096, (2 << 20) - 1, 2 << 20, (4 << 20) + 1}) {
    auto buffer = device->Allocate(size);
    REQUIRE(buffer.ok());
    CHECK(buffer->size_bytes() == size);
    CHECK(reinterpret_cast<uintptr_t>(buffer->data()) % 64 == 0);
    std::memset(buffer->data(), 0x5a, size);
  }
}

TEST_CASE("host memory is aligned, and counts for nothing") {
  auto device = MakeDevice(1000);
  CHECK(device->host_reads_memory());
  for (const int64_t size : {0, 1, 4097}) {
    auto memory = device->AllocateHost(size);
    REQUIRE(memory.ok());
    HostBuffer moved = *std::move(memory);
    CHECK(moved.size_bytes() == size);
    CHECK(reinterpret_cast<uintptr_t>(moved.data()) % 64 == 0);
    std::memset(moved.data(), 0x5a, size);
  }
  CHECK(device->Allocate(1000).ok());
  CHECK(device->AllocateHost(-1).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("a buffer moves and frees once") {
  auto device = MakeDevice(1000);
  auto buffer = device->Allocate(1000);
  REQUIRE(buffer.ok());
  Buffer moved = *std::move(buffer);
  CHECK(moved.size_bytes() == 1000);
  CHECK(device->Allocate(1).status().code() == absl::StatusCode::kResourceExhausted);
  moved = Buffer();
  CHECK(device->Allocate(1000).ok());
}

TEST_CASE("a stream runs in order, through a full ring") {
  auto device = MakeDevice(64 << 20);
  auto stream = device->CreateStream();
  REQUIRE(stream.ok());
  // Each op adds 1 to a row; far more ops than the ring has room for.
  std::vector<float> values(64, 0.0f), ones(64, 1.0f);
  const AddArgs args = {.out = TensorView(values.data(), DType::kF32, {1, 64}),
                        .in = TensorView(ones.data(), DType::kF32, {1, 64})};
  for (int i = 0; i < 2000; ++i) REQUIRE(device->ops().Add(args, **stream).ok());
  REQUIRE((*stream)->Synchronize().ok());
  CHECK(values == std::vector<float>(64, 2000.0f));
  REQUIRE((*stream)->Synchronize().ok());  // nothing to wait for
}

TEST_CASE("copies are ordered with ops; large ones go in pieces") {
  auto device = MakeDevice(64 << 20);
  auto stream = device->CreateStream();
  REQUIRE(stream.ok());
  const int64_t count = (9 << 20) / 4 + 3;
  std::vector<float> host(count), back(count, -1.0f);
  for (int64_t i = 0; i < count; ++i) host[i] = static_cast<float>(i % 1000);
  auto buffer = device->Allocate(count * 4);
  REQUIRE(buffer.ok());
  REQUIRE((*stream)->CopyToDevice(buffer->data(), host.data(), count * 4).ok());
  REQUIRE((*stream)->CopyToHost(back.data(), buffer->data(), count * 4).ok());
  REQUIRE((*stream)->Synchronize().ok());
  CHECK(host == back);
  CHECK((*stream)->CopyToHost(nullptr, buffer->data(), 4).code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK((*stream)->CopyToHost(back.data(), buffer->data(), -4).code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("ending a stream finishes what was enqueued") {
  auto device = MakeDevice(1 << 20);
  std::vector<float> values(8, 0.0f), ones(8, 1.0f);
  {
    auto stream = device->CreateStream();
    REQUIRE(stream.ok());
    const AddArgs args = {.out = TensorView(values.data(), DType::kF32, {1, 8}),
                          .in = TensorView(ones.data(), DType::kF32, {1, 8})};
    for (int i = 0; i < 100; ++i) REQUIRE(device->ops().Add(args, **stream).ok());
  }
  CHECK(values == std::vector<float>(8, 100.0f));
}

struct HostCount {
  int* runs = nullptr;
  const float* value = nullptr;
  float expected = 0;
  bool fails = false;
};

absl::Status Count(const HostCount& args) {
  ++*args.runs;
  if (args.value != nullptr && *args.value != args.expected) {
    return absl::InternalError("out of order");
  }
  return args.fails ? absl::AbortedError("host work " + std::to_string(*args.runs))
                    : absl::OkStatus();
}

TEST_CASE("host work runs in the order of the stream, through a full ring") {
  auto device = MakeDevice(1 << 20);
  auto stream = device->CreateStream();
  REQUIRE(stream.ok());
  std::vector<float> values(8, 0.0f), ones(8, 1.0f);
  const AddArgs add = {.out = TensorView(values.data(), DType::kF32, {1, 8}),
                       .in = TensorView(ones.data(), DType::kF32, {1, 8})};
  int runs = 0;
  for (int i = 1; i <= 1000; ++i) {
    REQUIRE(device->ops().Add(add, **stream).ok());
    const HostCount args = {.runs = &runs, .value = values.data(), .expected = float(i)};
    REQUIRE(EnqueueHost(**stream, &Count, args).ok());
  }
  CHECK((*stream)->Synchronize().ok());
  CHECK(runs == 1000);
}

TEST_CASE("behind a failure nothing runs until Synchronize returned it") {
  auto device = MakeDevice(1 << 20);
  auto stream = device->CreateStream();
  REQUIRE(stream.ok());
  std::vector<float> values(8, 0.0f), ones(8, 1.0f);
  float copied = -1;
  const AddArgs add = {.out = TensorView(values.data(), DType::kF32, {1, 8}),
                       .in = TensorView(ones.data(), DType::kF32, {1, 8})};
  int runs = 0;
  REQUIRE(EnqueueHost(**stream, &Count, {.runs = &runs}).ok());
  REQUIRE(EnqueueHost(**stream, &Count, {.runs = &runs, .fails = true}).ok());
  for (int i = 0; i < 300; ++i) {
    REQUIRE(EnqueueHost(**stream, &Count, {.runs = &runs, .fails = true}).ok());
    REQUIRE(device->ops().Add(add, **stream).ok());
    REQUIRE((*stream)->CopyToHost(&copied, ones.data(), sizeof copied).ok());
  }
  CHECK((*stream)->Synchronize() == absl::AbortedError("host work 2"));
  CHECK(runs == 2);
  CHECK(values == std::vector<float>(8, 0.0f));
  CHECK(copied == -1);

  REQUIRE(device->ops().Add(add, **stream).ok());
  REQUIRE(EnqueueHost(**stream, &Count, {.runs = &runs}).ok());
  CHECK((*stream)->Synchronize().ok());
  CHECK(runs == 3);
  CHECK(values == std::vector<float>(8, 1.0f));
}

TEST_CASE("host work with more arguments than a stream takes is refused") {
  auto device = MakeDevice(1 << 20);
  auto stream = device->CreateStream();
  REQUIRE(stream.ok());
  const std::vector<std::byte> arguments(kMaxHostArgumentBytes + 1);
  const auto work = [](const void*) { return absl::OkStatus(); };
  CHECK((*stream)->EnqueueHostWork(work, arguments.data(), kMaxHostArgumentBytes).ok());
  CHECK((*stream)->EnqueueHostWork(work, arguments.data(), kMaxHostArgumentBytes + 1).code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK((*stream)->Synchronize().ok());
}

TEST_CASE("a stream of another device is refused") {
  auto one = MakeDevice(1 << 20), other = MakeDevice(1 << 20);
  auto stream = other->CreateStream();
  REQUIRE(stream.ok());
  float value = 0;
  const AddArgs args = {.out = TensorView(&value, DType::kF32, {1, 1}),
                        .in = TensorView(&value, DType::kF32, {1, 1})};
  CHECK(one->ops().Add(args, **stream).code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("defaults come from the machine; what it lacks is refused") {
  auto device = CreateCpuDevice({});
  REQUIRE(device.ok());
  CHECK((*device)->memory_bytes() == ReadCpuShare(AffinityCores()).memory_bytes);
  CHECK((*device)->Describe().find("reference") != std::string::npos);
  if (!DetectCpuFeatures().amx) {
    CHECK(CreateCpuDevice({.isa = Isa::kAmx}).status().code() ==
          absl::StatusCode::kFailedPrecondition);
  }
}

}  // namespace
}  // namespace tessera::kernels
