// Work that a CUDA stream runs again as a graph.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/device/cuda_device.h"
#include "kernels/graph_stream.h"
#include "kernels/ops.h"
#include "tests/kernels/cuda/test_device.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

using Key = GraphStream::Key;

// Two rows of floats on a device: ones are added to a sum, or the sum to itself.
class Sums {
 public:
  Sums() {
    auto made = CreateCudaDevice({.memory_bytes = 64 << 20});
    REQUIRE(made.status().message() == "");
    device_ = *std::move(made);
    stream_ = *device_->CreateStream();
    memory_ = *device_->Allocate(2 * kWidth * 4);
    Set(0);
  }

  GraphStream& repeating() { return *stream_->repeating(); }
  Device& device() { return *device_; }
  void Set(float value) {
    std::vector<float> values(2 * kWidth, value);
    std::fill(values.begin() + kWidth, values.end(), 1.0f);
    REQUIRE(stream_->CopyToDevice(memory_.data(), values.data(), memory_.size_bytes()).ok());
    REQUIRE(stream_->Synchronize().ok());
  }
  float Sum() {
    std::vector<float> values(kWidth);
    REQUIRE(stream_->CopyToHost(values.data(), memory_.data(), kWidth * 4).ok());
    const absl::Status status = stream_->Synchronize();
    REQUIRE(status.message() == "");
    REQUIRE(values == std::vector<float>(kWidth, values[0]));
    return values[0];
  }
  absl::Status Synchronize() { return stream_->Synchronize(); }
  absl::Status Add() {
    const TensorView ones(memory_.data() + kWidth * 4, DType::kF32, {1, kWidth});
    return device_->ops().Add(
        {.out = TensorView(memory_.data(), DType::kF32, {1, kWidth}), .in = ones}, *stream_);
  }
  // Adds so many ones, as a step of a model does its work. True: it was kept from before.
  bool Step(const Key& key, int adds, bool whole = true) {
    if (repeating().Replay(key)) return true;
    repeating().BeginRecording(key);
    for (int i = 0; i < adds; ++i) REQUIRE(Add().ok());
    repeating().EndRecording(whole);
    return false;
  }

 private:
  static constexpr int64_t kWidth = 40;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Buffer memory_;
};

TEST_CASE("what comes for the third time is run from what the second time was kept") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  Sums sums;
  CHECK_FALSE(sums.Step(Key{1}, 3));
  CHECK(sums.Sum() == 3);
  CHECK_FALSE(sums.Step(Key{1}, 3));
  CHECK(sums.Sum() == 6);
  for (int i = 0; i < 4; ++i) CHECK(sums.Step(Key{1}, 3));
  CHECK(sums.Sum() == 18);
  // Between graphs the stream is as ever.
  CHECK(sums.Add().ok());
  CHECK(sums.Step(Key{1}, 3));
  CHECK(sums.Sum() == 22);
}

TEST_CASE("keys are told apart in every part, and there is room for some") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  Sums sums;
  float expected = 0;
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < std::tuple_size_v<Key>; ++i) {
      Key key{7};
      key[i] = 100;
      const int adds = 1 + static_cast<int>(i) % 3;
      CHECK(sums.Step(key, adds) == (round == 2));
      CHECK(sums.Sum() == (expected += adds));
    }
  }
  for (int round = 0; round < 3; ++round) {
    for (uint64_t i = 0; i < 100; ++i) {
      sums.Step(Key{200, i}, 1);
      expected += 1;
    }
  }
  CHECK(sums.Sum() == expected);
}

TEST_CASE("what comes once takes no room from what comes again") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  Sums sums;
  for (uint64_t i = 0; i < 1500; ++i) CHECK_FALSE(sums.Step(Key{300, i}, 1));
  for (int i = 0; i < 2; ++i) CHECK_FALSE(sums.Step(Key{2}, 1));
  CHECK(sums.Sum() == 1502);
  CHECK(sums.Step(Key{2}, 1));
  CHECK(sums.Sum() == 1503);
}

TEST_CASE("what has not been used for long gives its place to what comes again") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  Sums sums;
  float expected = 0;
  const auto step = [&sums, &expected](uint64_t i) {
    expected += 1;
    return sums.Step(Key{400, i}, 1);
  };
  const auto most = static_cast<uint64_t>(sums.repeating().kept().most);
  for (uint64_t i = 0; i < most + 40; ++i) {
    CAPTURE(i);
    CHECK_FALSE(step(i));
    CHECK_FALSE(step(i));
    CHECK(sums.Sum() == expected);
    CHECK(step(i));
  }
  CHECK(sums.Sum() == expected);
  CHECK(sums.repeating().kept().count == static_cast<int64_t>(most));
  // The last ones are there, the first ones are not.
  CHECK(step(most));
  CHECK_FALSE(step(0));
  CHECK(sums.Sum() == expected);
}

TEST_CASE("more graphs than places by turns: the first ones keep theirs") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  Sums sums;
  const auto most = static_cast<uint64_t>(sums.repeating().kept().most);
  for (int round = 0; round < 6; ++round) {
    for (uint64_t i = 0; i < most + 2; ++i) {
      CAPTURE(round, i);
      CHECK(sums.Step(Key{500, i}, 1) == (round >= 2 && i < most));
    }
    // Waits, too: what was recorded is kept by then.
    CHECK(sums.Sum() == static_cast<float>((round + 1) * (most + 2)));
  }
}

TEST_CASE("what was not whole is run, and never kept") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  Sums sums;
  CHECK_FALSE(sums.Step(Key{1}, 3));
  CHECK_FALSE(sums.Step(Key{1}, 2, false));
  CHECK(sums.Sum() == 5);
  CHECK_FALSE(sums.Step(Key{1}, 3));
  CHECK(sums.Sum() == 8);
  // Others are.
  for (int i = 0; i < 2; ++i) CHECK_FALSE(sums.Step(Key{2}, 1));
  CHECK(sums.Sum() == 10);
  CHECK(sums.Step(Key{2}, 1));
  CHECK(sums.Sum() == 11);
}

#ifdef TESSERA_CUDA_EMULATED

TEST_CASE("graphs are launched, and freed with their stream") {
  const int64_t launched = GraphsLaunched();
  {
    Sums sums;
    for (int i = 0; i < 5; ++i) {
      sums.Step(Key{1}, 3);
      CHECK(sums.Sum() == 3.0f * static_cast<float>(i + 1));  // waits: it is kept by now
    }
    CHECK(GraphsLaunched() == launched + 4);
    CHECK(GraphsAlive() == 1);
    const int64_t most = sums.repeating().kept().most;
    for (uint64_t i = 0; i < 200; ++i) {
      for (int time = 0; time < 3; ++time) sums.Step(Key{2, i}, 1);
    }
    CHECK(sums.Sum() == 615);
    CHECK(GraphsAlive() == most);  // those that gave way are freed as well
  }
  CHECK(GraphsAlive() == 0);
}

TEST_CASE("where CUDA keeps no graph, everything runs launch by launch") {
  Inject({.captures_fail = true});
  const int64_t launched = GraphsLaunched();
  Sums sums;
  for (int i = 1; i <= 4; ++i) {
    CHECK_FALSE(sums.Step(Key{1}, 3));
    CHECK(sums.Sum() == 3.0f * static_cast<float>(i));
  }
  Inject({});
  // Nor is anything tried again.
  for (int i = 0; i < 4; ++i) CHECK_FALSE(sums.Step(Key{2}, 1));
  CHECK(sums.Sum() == 16);
  CHECK(GraphsLaunched() == launched);
  CHECK(GraphsAlive() == 0);
  CHECK(sums.device().Lost().ok());
}

TEST_CASE("a launch that fails in a graph fails as it would alone") {
  Sums sums;
  for (int i = 0; i < 3; ++i) {
    sums.Step(Key{1}, 3);
    CHECK(sums.Sum() == 3.0f * static_cast<float>(i + 1));
  }
  Inject({.failing_launch = 2, .launch_error = cudaErrorInvalidConfiguration});
  CHECK(sums.Step(Key{1}, 3));
  CHECK_THAT(std::string(sums.Synchronize().message()), Catch::Contains("a graph"));
  Inject({});
  CHECK(sums.Step(Key{1}, 3));
  CHECK(sums.Sum() == 13);
  Inject({.failing_launch = 1});
  CHECK(sums.Step(Key{1}, 3));
  CHECK_FALSE(sums.Synchronize().ok());
  CHECK_FALSE(sums.device().Lost().ok());
  Inject({});
}

TEST_CASE("a step that failed before is no reason to keep nothing any more") {
  Sums sums;
  CHECK_FALSE(sums.Step(Key{1}, 1));
  CHECK(sums.Sum() == 1);
  Inject({.failing_launch = 1, .launch_error = cudaErrorInvalidConfiguration});
  REQUIRE(sums.Add().ok());
  CHECK_FALSE(sums.Step(Key{1}, 1));  // is skipped
  CHECK_FALSE(sums.Synchronize().ok());
  Inject({});
  CHECK(sums.Sum() == 1);
  for (int i = 0; i < 2; ++i) CHECK_FALSE(sums.Step(Key{2}, 1));
  CHECK(sums.Sum() == 3);
  CHECK(sums.Step(Key{2}, 1));
  CHECK(sums.Sum() == 4);
}

#endif

}  // namespace
}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
