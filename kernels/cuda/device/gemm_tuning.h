// Which of the equal ways (GemmChoices of launch/linear_shapes.h) our GEMM takes for the matrices
// of a model: measured when its weights are loaded, with random weights of the same size. Products
// with experts are not measured. Thread-safe.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <shared_mutex>

#include "kernels/cuda/device/launch_tuner.h"
#include "kernels/cuda/linear/linear_kernels.h"
#include "kernels/cuda/runtime.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

class GemmTuning {
 public:
  // `tuner` is borrowed; null: nothing is measured.
  explicit GemmTuning(LaunchTuner* tuner) : tuner_(tuner) {}

  // Measures products like this one with up to `max_rows` rows, in powers of two. Its rows and
  // addresses count for nothing; `in` is rounded already.
  void Prepare(const LinearParams& product, int64_t max_rows);
  // For the product's rows; what is usual where none was prepared.
  GemmChoice Find(const LinearParams& product) const;

 private:
  struct Key {
    DType weights = DType::kBF16;
    bool e2m1 = false;
    int64_t group_size = 0, block_size = 0, columns = 0, depth = 0;
    int64_t rows = 0;  // a power of two; a choice serves as many, and fewer down to half of it
    auto operator<=>(const Key&) const = default;
  };

  static Key KeyOf(const LinearParams& product, int64_t rows);
  GemmChoice Measure(const LinearParams& product, const Key& key) const;

  LaunchTuner* const tuner_;
  mutable std::shared_mutex mutex_;
  std::map<Key, GemmChoice> choices_;
};

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
