// The implementations of kernels/ops.h that this machine can run, and tensors on them.
//
// Everything goes through Device and Stream as a model would: inputs are uploaded, outputs
// downloaded, so that a device with memory of its own can join. Errors fail the test case.
// Single-threaded.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "kernels/ops.h"

namespace tessera::kernels::conformance {

// A device, one stream of it, and a workspace that grows on demand.
class Path {
 public:
  // `check` runs at the end of every Synchronize and fails the test case where it finds a fault.
  explicit Path(std::unique_ptr<Device> device, absl::Status (*check)() = nullptr);

  std::string name() const { return device_->ops().name(); }
  // float16 alone is not of all paths.
  bool Takes(DType dtype) const;
  Device& device() { return *device_; }
  Ops& ops() { return device_->ops(); }
  Stream& stream() { return *stream_; }
  TensorView Workspace(int64_t size_bytes);
  void Synchronize();

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Buffer workspace_;
  absl::Status (*const check_)();
};

// The oracle, and every other path of this CPU. Made once per process.
Path& Reference();
const std::vector<std::unique_ptr<Path>>& OtherPaths();
// Paths that exist but cannot run here, as a reason; empty when all run.
std::string MissingPaths();

// The CUDA device on the emulator, where each launch runs under another schedule and Synchronize
// looks at the guards of memory. Null under ThreadSanitizer, where a switch of fibers is slow, and
// where a GPU is under test.
Path* CudaEmulated();
// The GPU that is under test (tests/kernels/device_under_test.h), or null.
Path* Gpu();
// Ops of Ops, by name, that it has no kernel for.
const std::vector<std::string>& MissingOnCuda();
// Every path under test but the reference that has this op: "Rope".
std::vector<Path*> PathsWith(const std::string& op);

// Numbers from a seed: uniform in [-1, 1), as floats.
std::vector<float> RandomFloats(int64_t count, uint64_t seed);
std::vector<int32_t> RandomInts(int64_t count, int32_t below, uint64_t seed);

// A tensor on a path's device, filled from host values (which are rounded to its type; of i8 and f8
// they are the bytes, 0 to 255).
class Tensor {
 public:
  // `padding`: elements between rows that belong to nobody; they are checked by PaddingIntact.
  Tensor(Path& path, DType dtype, std::vector<int64_t> shape, const std::vector<float>& values,
         int64_t padding = 0);
  Tensor(Path& path, std::vector<int64_t> shape, const std::vector<int32_t>& values);
  Tensor(Path& path, const std::vector<uint64_t>& values);

  const TensorView& view() const { return view_; }
  operator const TensorView&() const { return view_; }  // NOLINT: stands in for its view
  std::vector<float> Read() const;                      // after Path::Synchronize
  std::vector<int32_t> ReadInts() const;
  bool PaddingIntact() const;

 private:
  void Upload(const std::vector<std::byte>& bytes);
  std::vector<std::byte> Download() const;

  Path& path_;
  Buffer buffer_;
  TensorView view_;
};

Tensor Zeros(Path& path, DType dtype, std::vector<int64_t> shape, int64_t padding = 0);
Tensor Random(Path& path, DType dtype, std::vector<int64_t> shape, uint64_t seed,
              int64_t padding = 0);

// 1e-5 of the largest reference value for f32, 2e-3 for f16, 1e-2 for bf16.
double Tolerance(DType dtype);
// Empty when max|actual - expected| <= tolerance * max|expected|, else says where and by how much.
std::string Difference(const std::vector<float>& actual, const std::vector<float>& expected,
                       double tolerance);

// Runs `run`, which needs this op, on the reference and on every other path that has it (and takes
// the type), and CHECKs that they agree.
void CheckAgainstReference(const std::string& op, DType dtype,
                           const std::function<std::vector<float>(Path&)>& run);
void CheckAgainstReference(const std::string& op, double tolerance,
                           const std::function<std::vector<float>(Path&)>& run);

}  // namespace tessera::kernels::conformance
