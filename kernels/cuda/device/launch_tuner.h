// Which of several equal ways of a launch is the fastest on this GPU: measured by events when a
// model is loaded, and kept in a table (kernels/tuning_table.h).
//
// Equal means that no bit of a result depends on the choice, or that the launch is a library's,
// whose bits are its own anyway. Thread-safe; one measurement at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/cuda/device/cuda_health.h"
#include "kernels/cuda/runtime.h"
#include "kernels/tuning_table.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

class LaunchTuner {
 public:
  // Launches choice `choice` for the `call`th time, with memory of the device. An error: the choice
  // cannot be used.
  using Launch =
      std::function<cudaError_t(int choice, int call, std::byte* memory, cudaStream_t stream)>;

  // `health` must outlive the tuner.
  LaunchTuner(int device_index, CudaHealth* health, std::shared_ptr<TuningTable> table)
      : device_index_(device_index), health_(health), table_(std::move(table)) {}

  // The choice for `key` of 0 to `choices` - 1; 0 where none can be measured. `memory_bytes` of
  // numbers, beside what the Device has given out, are there for the launches from a multiple of
  // 256 bytes on, as long as they are measured.
  int Choose(const std::string& key, int choices, int64_t memory_bytes, const Launch& launch);
  // How many copies of so many bytes, which launches read in turn, no cache of the GPU holds.
  int64_t Copies(int64_t bytes) const;
  // Writes the table where it has news; a failure is logged.
  void Save();
  std::string Describe() const { return table_->Describe(); }

 private:
  class Bench;

  const int device_index_;
  CudaHealth* const health_;
  const std::shared_ptr<TuningTable> table_;
  std::mutex mutex_;
};

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
