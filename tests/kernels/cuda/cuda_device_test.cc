// The CUDA device on both platforms: memory, streams, copies, host work, failures.
#include "kernels/cuda/device/cuda_device.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/event_stream.h"
#include "kernels/ops.h"
#include "tests/kernels/cuda/test_device.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

using Catch::Matchers::Contains;

std::unique_ptr<Device> MakeDevice(int64_t memory_bytes = 64 << 20) {
  auto device = CreateCudaDevice({.memory_bytes = memory_bytes});
  INFO(device.status().message());
  REQUIRE(device.ok());
  return *std::move(device);
}

// Floats in the device's memory.
class Floats {
 public:
  Floats(Device& device, Stream& stream, const std::vector<float>& values)
      : stream_(stream), count_(static_cast<int64_t>(values.size())) {
    auto buffer = device.Allocate(count_ * 4);
    REQUIRE(buffer.ok());
    buffer_ = *std::move(buffer);
    REQUIRE(stream.CopyToDevice(buffer_.data(), values.data(), count_ * 4).ok());
    REQUIRE(stream.Synchronize().ok());
  }
  TensorView view() const { return TensorView(buffer_.data(), DType::kF32, {1, count_}); }
  std::vector<float> Read() const {
    std::vector<float> values(count_);
    REQUIRE(stream_.CopyToHost(values.data(), buffer_.data(), count_ * 4).ok());
    REQUIRE(stream_.Synchronize().ok());
    return values;
  }

 private:
  Stream& stream_;
  const int64_t count_;
  Buffer buffer_;
};

// A device, a stream of it, and two rows of which one is added to the other.
struct Adder {
  explicit Adder(int64_t width = 8)
      : width(width),
        device(MakeDevice()),
        stream(*device->CreateStream()),
        sum(*device, *stream, std::vector<float>(width, 0.0f)),
        ones(*device, *stream, std::vector<float>(width, 1.0f)) {}
  absl::Status Add() { return device->ops().Add({.out = sum.view(), .in = ones.view()}, *stream); }
  bool SumIs(float value) const { return sum.Read() == std::vector<float>(width, value); }

  const int64_t width;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  Floats sum, ones;
};

TEST_CASE("the host reads what stands before a mark, while what is behind it has not begun") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  Adder adder;
  auto& marks = *adder.stream->marking();
  auto sums = adder.device->AllocateHost(adder.width * 4);
  REQUIRE(sums.ok());
  std::atomic<bool> go_on = false;
  struct Gate {
    std::atomic<bool>* open;
  };
  for (int step = 0; step < 5; ++step) {
    REQUIRE(adder.Add().ok());
    REQUIRE(adder.stream->CopyToHost(sums->data(), adder.sum.view().data, adder.width * 4).ok());
    marks.Mark(step % 2);
    go_on = false;
    REQUIRE(EnqueueHost<Gate>(*adder.stream,
                              [](const Gate& gate) {
                                gate.open->wait(false);
                                return absl::OkStatus();
                              },
                              {&go_on})
                .ok());
    REQUIRE(adder.Add().ok());
    marks.Mark((step + 1) % 2);
    REQUIRE(marks.WaitMark(step % 2).ok());  // the gate is closed: what it lets through has not run
    CHECK(marks.Passed(step % 2));
    CHECK_FALSE(marks.Passed((step + 1) % 2));
    std::vector<float> got(adder.width);
    std::memcpy(got.data(), sums->data(), got.size() * sizeof(float));
    CHECK(got == std::vector<float>(adder.width, static_cast<float>(2 * step + 1)));
    go_on = true;
    go_on.notify_all();
    CHECK(adder.SumIs(static_cast<float>(2 * step + 2)));
    CHECK(marks.Passed((step + 1) % 2));
  }
}

TEST_CASE("a mark behind a failure returns the failure, also after Synchronize has returned it") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  Adder adder;
  auto& marks = *adder.stream->marking();
  struct Nothing {};
  marks.Mark(0);
  REQUIRE(EnqueueHost<Nothing>(*adder.stream,
                               [](const Nothing&) { return absl::AbortedError("a test"); }, {})
              .ok());
  REQUIRE(adder.Add().ok());
  marks.Mark(1);
  CHECK(marks.WaitMark(0).ok());
  CHECK(marks.WaitMark(1) == absl::AbortedError("a test"));
  CHECK(marks.Passed(1));
  CHECK(adder.stream->Synchronize() == absl::AbortedError("a test"));
  CHECK(marks.WaitMark(1) == absl::AbortedError("a test"));
  REQUIRE(adder.Add().ok());
  marks.Mark(1);
  CHECK(marks.WaitMark(1).ok());
  CHECK(adder.SumIs(1));
}

TEST_CASE("memory is accounted, and refused with both numbers") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  auto device = MakeDevice(10'000'000);
  CHECK(device->memory_bytes() == 10'000'000);
  auto first = device->Allocate(6'000'000);
  REQUIRE(first.ok());
  const absl::Status status = device->Allocate(5'000'000).status();
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(status.message()), Contains("cuda"));
  CHECK_THAT(std::string(status.message()), Contains("5000000"));
  CHECK_THAT(std::string(status.message()), Contains("4000000"));
  *first = Buffer();
  CHECK(device->Allocate(10'000'000).ok());
  CHECK(device->Allocate(-1).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("host memory is pinned, aligned, and outlives the device") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  auto device = MakeDevice(1000);
  CHECK_FALSE(device->host_reads_memory());
  HostBuffer memory;
  for (const int64_t size : {0, 1, 4097}) {
    auto allocated = device->AllocateHost(size);
    REQUIRE(allocated.ok());
    memory = *std::move(allocated);
    CHECK(memory.size_bytes() == size);
    CHECK(reinterpret_cast<uintptr_t>(memory.data()) % 64 == 0);
    std::memset(memory.data(), 0x5a, size);
  }
  CHECK(device->AllocateHost(-1).status().code() == absl::StatusCode::kInvalidArgument);
  device.reset();
#ifdef TESSERA_CUDA_EMULATED
  CHECK(PinnedBytes() == 4097);
  memory = HostBuffer();
  CHECK(PinnedBytes() == 0);
#endif
}

#ifdef TESSERA_CUDA_EMULATED
TEST_CASE("host memory that cannot be pinned is refused with its size and what to do") {
  auto device = MakeDevice();
  Inject({.pinned_bytes = 1000});
  const absl::Status refused = device->AllocateHost(1001).status();
  Inject({});
  CHECK(refused.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(refused.message()),
             Contains("staging: the system pins no 1001 bytes") && Contains("ulimit -l"));
}
#endif

TEST_CASE("buffers of any size are aligned") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  auto device = MakeDevice();
  for (const int64_t size : {0, 1, 63, 4096, (2 << 20) + 1}) {
    auto buffer = device->Allocate(size);
    REQUIRE(buffer.ok());
    CHECK(buffer->size_bytes() == size);
    CHECK(reinterpret_cast<uintptr_t>(buffer->data()) % 64 == 0);
  }
}

TEST_CASE("a device that is not there, or has less memory, is refused by name") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  for (const int index : {-1, 1000}) {
    const absl::Status status = CreateCudaDevice({.index = index}).status();
    CHECK(status.code() == absl::StatusCode::kNotFound);
    CHECK_THAT(std::string(status.message()), Contains(std::to_string(index)));
  }
  CHECK(CreateCudaDevice({.memory_bytes = int64_t{1} << 60}).status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK_THAT(MakeDevice()->Describe(), Contains("cuda") && Contains(":0") && Contains("64 MiB"));
}

TEST_CASE("a stream runs in order, through a full ring") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  Adder adder;
  for (int i = 0; i < 600; ++i) REQUIRE(adder.Add().ok());
  REQUIRE(adder.stream->Synchronize().ok());
  CHECK(adder.SumIs(600));
  REQUIRE(adder.stream->Synchronize().ok());  // nothing to wait for
}

TEST_CASE("copies that make no sense are refused") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  auto device = MakeDevice();
  auto stream = *device->CreateStream();
  float value = 0;
  CHECK(stream->CopyToHost(nullptr, &value, 4).code() == absl::StatusCode::kInvalidArgument);
  CHECK(stream->CopyToDevice(&value, &value, -4).code() == absl::StatusCode::kInvalidArgument);
  CHECK(stream->CopyToDevice(nullptr, nullptr, 0).ok());
}

TEST_CASE("ending a stream finishes what was enqueued") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  Adder adder;
  auto other = *adder.device->CreateStream();
  for (int i = 0; i < 100; ++i) {
    REQUIRE(
        adder.device->ops().Add({.out = adder.sum.view(), .in = adder.ones.view()}, *other).ok());
  }
  other.reset();
  CHECK(adder.SumIs(100));
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

TEST_CASE("host work runs in the order of the stream, and sees what is before it") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  Adder adder;
  int runs = 0;
  float copied = 0;
  for (int i = 1; i <= 200; ++i) {
    REQUIRE(adder.Add().ok());
    REQUIRE(adder.stream->CopyToHost(&copied, adder.sum.view().data, sizeof copied).ok());
    const HostCount args = {.runs = &runs, .value = &copied, .expected = static_cast<float>(i)};
    REQUIRE(EnqueueHost(*adder.stream, &Count, args).ok());
  }
  CHECK(adder.stream->Synchronize().ok());
  CHECK(runs == 200);
}

TEST_CASE("behind a failure nothing runs until Synchronize returned it") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  Adder adder;
  float copied = -1;
  int runs = 0;
  REQUIRE(EnqueueHost(*adder.stream, &Count, {.runs = &runs}).ok());
  for (int i = 0; i < 300; ++i) {
    REQUIRE(EnqueueHost(*adder.stream, &Count, {.runs = &runs, .fails = true}).ok());
    REQUIRE(adder.Add().ok());
    REQUIRE(adder.stream->CopyToHost(&copied, adder.ones.view().data, sizeof copied).ok());
  }
  CHECK(adder.stream->Synchronize() == absl::AbortedError("host work 2"));
  CHECK(runs == 2);
  CHECK(copied == -1);
  CHECK(adder.SumIs(0));

  REQUIRE(adder.Add().ok());
  REQUIRE(EnqueueHost(*adder.stream, &Count, {.runs = &runs}).ok());
  CHECK(adder.stream->Synchronize().ok());
  CHECK(runs == 3);
  CHECK(adder.SumIs(1));
}

TEST_CASE("host work with more arguments than a stream takes is refused") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  auto device = MakeDevice();
  auto stream = *device->CreateStream();
  const std::vector<std::byte> arguments(kMaxHostArgumentBytes + 1);
  const auto work = [](const void*) { return absl::OkStatus(); };
  CHECK(stream->EnqueueHostWork(work, arguments.data(), kMaxHostArgumentBytes).ok());
  CHECK(stream->EnqueueHostWork(work, arguments.data(), kMaxHostArgumentBytes + 1).code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(stream->Synchronize().ok());
}

TEST_CASE("a stream of another device is refused") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  Adder adder;
  auto other = MakeDevice();
  const absl::Status status =
      other->ops().Add({.out = adder.sum.view(), .in = adder.ones.view()}, *adder.stream);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
}

#ifdef TESSERA_CUDA_EMULATED

// The end of the test undoes what it injected into the runtime.
struct WithInjection {
  explicit WithInjection(const Injection& injection) { Inject(injection); }
  ~WithInjection() { Inject({}); }
};

TEST_CASE("memory that the GPU lacks is refused, and what was taken is given back") {
  auto device = MakeDevice(1000);
  const WithInjection injection({.memory_bytes = 100});
  const absl::Status status = device->Allocate(900).status();
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(status.message()),
             Contains("asked for 900 bytes, available are 100 of 1000"));
  Inject({});
  CHECK(device->Allocate(1000).ok());
}

TEST_CASE("a launch that is refused fails alone, and skips what is behind it") {
  Adder adder;
  const WithInjection injection(
      {.failing_launch = 3, .launch_error = cudaErrorLaunchOutOfResources});
  for (int i = 0; i < 5; ++i) REQUIRE(adder.Add().ok());
  const absl::Status status = adder.stream->Synchronize();
  CHECK(status.code() == absl::StatusCode::kInternal);
  CHECK_THAT(std::string(status.message()),
             Contains("cuda-emulated:0: Add: too many resources requested for launch"));
  CHECK(adder.SumIs(2));
  REQUIRE(adder.Add().ok());
  CHECK(adder.SumIs(3));
}

TEST_CASE("a sticky error loses the device for all its streams, with the first reason") {
  Adder adder;
  auto other = *adder.device->CreateStream();
  const WithInjection injection({.failing_launch = 2});
  for (int i = 0; i < 5; ++i) REQUIRE(adder.Add().ok());
  const absl::Status status = adder.stream->Synchronize();
  CHECK_THAT(std::string(status.message()),
             Contains("cuda-emulated:0: Add: an illegal memory access was encountered") &&
                 Contains("start the worker again"));
  CHECK(adder.stream->Synchronize() == status);
  CHECK(other->Synchronize() == status);
  CHECK(adder.device->Allocate(4).status() == status);
  CHECK(adder.device->CreateStream().status() == status);
  CHECK(adder.device->Lost() == status);
  CHECK(MakeDevice()->Allocate(4).ok());  // another process, as it were
}

TEST_CASE(
    "a kernel that never ends loses the device in bounded time, whatever is queued behind it") {
  auto short_wait = *CreateCudaDevice({.memory_bytes = 1 << 20, .max_wait_seconds = 0.05});
  auto stream = *short_wait->CreateStream();
  CHECK(short_wait->Lost().ok());
  const auto out = *short_wait->Allocate(16), in = *short_wait->Allocate(16);
  const TensorView sum(out.data(), DType::kF32, {1, 4}), ones(in.data(), DType::kF32, {1, 4});
  const WithInjection injection({.stalling_launch = 2});
  float copied = 0;
  int runs = 0;
  REQUIRE(short_wait->ops().Add({.out = sum, .in = ones}, *stream).ok());
  CHECK(stream->Synchronize().ok());
  for (int i = 0; i < 600; ++i) {  // more than the ring holds
    REQUIRE(short_wait->ops().Add({.out = sum, .in = ones}, *stream).ok());
    REQUIRE(stream->CopyToHost(&copied, out.data(), sizeof copied).ok());
    if (i == 300) (void)EnqueueHost(*stream, &Count, {.runs = &runs});
  }
  const absl::Status status = stream->Synchronize();
  CHECK_THAT(std::string(status.message()), Contains("the GPU did not finish within 0.05 s") &&
                                                Contains("start the worker again"));
  CHECK(short_wait->Lost() == status);
  CHECK(stream->Synchronize() == status);
  CHECK(short_wait->Allocate(4).status() == status);
  CHECK(runs == 0);
  CHECK(copied == 0);
}

TEST_CASE("work that never ends is waited for in bounded time at a mark, too") {
  // What ends has so long on a busy machine.
  auto short_wait = *CreateCudaDevice({.memory_bytes = 1 << 20, .max_wait_seconds = 2});
  auto stream = *short_wait->CreateStream();
  auto& marks = *stream->marking();
  const auto out = *short_wait->Allocate(16), in = *short_wait->Allocate(16);
  const TensorView sum(out.data(), DType::kF32, {1, 4}), ones(in.data(), DType::kF32, {1, 4});
  const WithInjection injection({.stalling_launch = 2});
  for (int i = 0; i < 2; ++i) {
    REQUIRE(short_wait->ops().Add({.out = sum, .in = ones}, *stream).ok());
    marks.Mark(i);
  }
  CHECK(marks.WaitMark(0).ok());
  const absl::Status status = marks.WaitMark(1);
  CHECK_THAT(std::string(status.message()), Contains("the GPU did not finish within 2 s"));
  CHECK(short_wait->Lost() == status);
  CHECK(marks.WaitMark(0) == status);
}

#endif

}  // namespace
}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
