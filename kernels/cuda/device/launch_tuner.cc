#include "kernels/cuda/device/launch_tuner.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "third_party/spdlog/log.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

// A choice is launched once to warm up, then in so many runs, the best of which counts. What takes
// long is seen as well with less.
constexpr int kRuns = 3, kLaunches = 4;
constexpr int kLongRuns = 2;
constexpr double kLongSeconds = 2e-4;
// The numbers that are repeated through the memory.
constexpr int64_t kPieceBytes = int64_t{1} << 20;

// From 1 to 2 of either sign as bfloat16, alike as float16: products of zeros run at higher clocks.
std::vector<uint16_t> Numbers() {
  std::vector<uint16_t> numbers(kPieceBytes / 2);
  uint32_t state = 1;
  for (uint16_t& number : numbers) {
    state = state * 1664525u + 1013904223u;
    number = static_cast<uint16_t>(0x3f80u | (state >> 16 & 0x807fu));
  }
  return numbers;
}

}  // namespace

// A stream, two events and memory, of one measurement.
class LaunchTuner::Bench {
 public:
  Bench(CudaHealth* health, int64_t memory_bytes) : health_(health) {
    Then(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    Then(cudaEventCreateWithFlags(&begin_, 0));
    Then(cudaEventCreateWithFlags(&end_, 0));
    Fill(std::max<int64_t>(memory_bytes, 1));
  }
  ~Bench() {
    if (stream_ != nullptr) (void)WaitIdle(stream_, *health_, "a measurement");
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (end_ != nullptr) cudaEventDestroy(end_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
    cudaFree(memory_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // A GPU without room is none to measure on.
  bool usable() const { return error_ == cudaSuccess; }

  absl::StatusOr<double> Seconds(const Launch& launch, int choice) {
    int call = 0;
    double best = 0;
    bool lengthy = false;
    for (int run = 0; run <= (lengthy ? kLongRuns : kRuns); ++run) {
      const int launches = run == 0 || lengthy ? 1 : kLaunches;
      Then(cudaEventRecord(begin_, stream_));
      for (int i = 0; i < launches; ++i) Then(launch(choice, call++, memory_, stream_));
      Then(cudaEventRecord(end_, stream_));
      if (absl::Status done = Done(); !done.ok()) return done;
      float milliseconds = 0;
      Then(cudaEventElapsedTime(&milliseconds, begin_, end_));
      const double seconds = 1e-3 * static_cast<double>(milliseconds) / launches;
      if (run == 0) lengthy = seconds > kLongSeconds;
      if (run == 1 || (run > 1 && seconds < best)) best = seconds;
    }
    return best;
  }

 private:
  void Then(cudaError_t error) {
    if (error_ == cudaSuccess) error_ = error;
  }

  void Fill(int64_t bytes) {
    void* memory = nullptr;
    Then(cudaMalloc(&memory, static_cast<size_t>(bytes)));
    if (!usable()) return;
    memory_ = static_cast<std::byte*>(memory);
    const std::vector<uint16_t> numbers = Numbers();
    int64_t filled = std::min(bytes, kPieceBytes);
    Then(cudaMemcpy(memory_, numbers.data(), static_cast<size_t>(filled), cudaMemcpyHostToDevice));
    while (filled < bytes) {
      const int64_t more = std::min(filled, bytes - filled);
      Then(cudaMemcpy(memory_ + filled, memory_, static_cast<size_t>(more),
                      cudaMemcpyDeviceToDevice));
      filled += more;
    }
  }

  // What the launches gave, once they have ended; the next choice begins without it.
  absl::Status Done() {
    absl::Status status = WaitEvent(end_, stream_, *health_, "a measurement");
    const cudaError_t error = std::exchange(error_, cudaSuccess);
    if (error != cudaSuccess) cudaGetLastError();  // or the next launch of this thread returns it
    return error == cudaSuccess ? status : health_->Check(error, "a measurement", stream_);
  }

  CudaHealth* const health_;
  cudaError_t error_ = cudaSuccess;  // the first since Done
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::byte* memory_ = nullptr;
};

int LaunchTuner::Choose(const std::string& key, int choices, int64_t memory_bytes,
                        const Launch& launch) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<Bench> bench;  // where nothing is kept
  return table_->Choose(key, choices, [&](int choice) -> absl::StatusOr<double> {
    if (bench == nullptr) {
      cudaSetDevice(device_index_);
      bench = std::make_unique<Bench>(health_, memory_bytes);
      if (!bench->usable()) cudaGetLastError();
    }
    if (!bench->usable()) return absl::ResourceExhaustedError("the GPU has no room to measure");
    return bench->Seconds(launch, choice);
  });
}

int64_t LaunchTuner::Copies(int64_t bytes) const {
  cudaDeviceProp properties = {};
  if (cudaGetDeviceProperties(&properties, device_index_) != cudaSuccess) return 1;
  const int64_t cached = 2 * int64_t{properties.l2CacheSize};
  return std::max<int64_t>(1, (cached + bytes - 1) / std::max<int64_t>(bytes, 1));
}

void LaunchTuner::Save() {
  if (absl::Status saved = table_->Save(); !saved.ok()) {
    Logger("kernels").warn("{}", std::string(saved.message()));
  }
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
