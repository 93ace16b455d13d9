// Dense products by cuBLASLt. Each shape has a plan with an algorithm that the library suggests for
// it, made when weights are loaded; steps make none. With a tuner it is the fastest of eight, else
// the library's first.
//
// The library sums in an order of its own: a row's bits depend on how many rows there are. Thread-
// safe; a plan is used by one stream at a time.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda/device/launch_tuner.h"
#include "kernels/cuda/driver/blas_table.h"
#include "kernels/cuda/runtime.h"
#include "kernels/dtype.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

class BlasProducts {
 public:
  // Rows of the smallest plan; it serves fewer, too.
  static constexpr int64_t kMinRows = 8;

  // out[rows, columns] = in[rows, depth] * weights[columns, depth]^T + bias.
  struct Shape {
    DType type = DType::kBF16;                          // of `in` and weights: f16 or bf16
    DType out = DType::kF32;                            // f32, or that type
    bool bias = false;                                  // f32, where `out` is
    int64_t columns = 0, depth = 0, weight_stride = 0;  // elements
    auto operator<=>(const Shape&) const = default;
  };
  struct Plan;
  // A product to be launched. Strides are elements.
  struct Call {
    BlasProducts* products = nullptr;
    Plan* plan = nullptr;
    void* out = nullptr;
    const void* in = nullptr;
    const void* weights = nullptr;
    const float* bias = nullptr;
    void* workspace = nullptr;
    int64_t rows = 0, out_stride = 0, in_stride = 0, workspace_bytes = 0;
  };

  // Products of the device that is chosen. Internal where the library refuses; the table is copied.
  static absl::StatusOr<std::unique_ptr<BlasProducts>> Create(const BlasTable& table);
  ~BlasProducts();
  BlasProducts(const BlasProducts&) = delete;
  BlasProducts& operator=(const BlasProducts&) = delete;

  // Borrowed, before Prepare; null: suggestions are not measured.
  void set_tuner(LaunchTuner* tuner) { tuner_ = tuner; }
  // Makes plans for the shape with kMinRows to `max_rows` rows, each twice the one before. Returns
  // what the one that takes most wants as workspace, aligned to 256 bytes.
  int64_t Prepare(const Shape& shape, int64_t max_rows);
  // Null where none was prepared, or the library had no algorithm.
  Plan* Find(const Shape& shape, int64_t rows);
  static int64_t WorkspaceBytes(const Plan& plan);
  // False: the library does not compute this call, the reason is logged, and nothing was launched.
  // It is not asked again for so many rows with such strides.
  static bool Launch(const Call& call, cudaStream_t stream);

 private:
  struct Key {
    Shape shape;
    int64_t rows = 0;  // a power of two; a plan serves as many, and fewer down to half of it
    auto operator<=>(const Key&) const = default;
  };

  BlasProducts(const BlasTable& table, BlasHandle handle);
  // Null where the library suggests nothing.
  std::unique_ptr<Plan> MakePlan(const Key& key);
  // Those that can be used.
  std::vector<BlasSuggestion> Suggestions(Plan& plan) const;
  size_t Fastest(const Key& key, Plan& plan, const std::vector<BlasSuggestion>& suggestions);
  BlasStatus Multiply(const Call& call, cudaStream_t stream) const;  // the plan's mutex is held

  const BlasTable blas_;
  const BlasHandle handle_;
  LaunchTuner* tuner_ = nullptr;
  std::mutex mutex_;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
