// Every implementation of a linear that this machine can run, for the tests of kernels/cpu/linear:
// the paths that --cpu-isa chooses, and AMX with its tile instructions emulated. And numbers to run
// them on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace tessera::kernels {

struct LinearPath {
  std::string name;
  std::function<int64_t(const LinearSpec&)> packed_bytes;
  std::function<absl::Status(const PackedWeights&, int64_t, const TensorView&)> pack;
  std::function<void(const PackedWeights&, int64_t, const TensorView&)> unpack;
  std::function<int64_t(const LinearSpec&, int64_t)> workspace_bytes;
  std::function<void(const LinearArgs&, ThreadPool&)> run;
  std::function<void(const GroupedLinearArgs&, ThreadPool&)> run_grouped;
};

const std::vector<LinearPath>& LinearPaths();

// All cores this process may use; the cores may be shared with other tests.
ThreadPool& TestPool();
ThreadPool& OneThread();

// 64-byte aligned memory, filled with bytes that are NaN in every floating-point type.
class Memory {
 public:
  explicit Memory(int64_t size_bytes);
  std::byte* data() const { return aligned_; }
  template <typename T>
  T* As() const {
    return reinterpret_cast<T*>(aligned_);
  }

 private:
  std::vector<std::byte> storage_;
  std::byte* aligned_;
};

// A dense or strided matrix with its memory.
struct Matrix {
  Matrix(DType dtype, int64_t rows, int64_t columns, int64_t row_stride = 0);
  void FillNormal(std::mt19937& random, float deviation = 1.0f);
  float Get(int64_t row, int64_t column) const;
  void Set(int64_t row, int64_t column, float value);

  Memory memory;
  TensorView view;
};

// Weights packed by `path`, and as the f32 numbers that it computes with.
struct TestWeights {
  TestWeights(const LinearPath& path, const LinearSpec& spec, std::mt19937& random);

  Memory memory;
  PackedWeights packed;
  Matrix values;
};

float LargestMagnitude(const Matrix& matrix);
// Of the largest result: 1e-5 for f32 activations that are not rounded, 1e-2 otherwise.
float LinearTolerance(DType activations, DType products);

}  // namespace tessera::kernels
