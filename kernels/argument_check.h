// The first thing wrong with an op's tensors, as a Status. Used by ops_check only.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/status/status.h"
#include "kernels/tensor.h"

namespace tessera::kernels {

inline constexpr int64_t kAnySize = -1;

class ArgumentCheck {
 public:
  enum class Stride : uint8_t { kDense, kMayBeStrided };

  explicit ArgumentCheck(const char* op) : op_(op) {}

  // `view` must have one of `types` and exactly `shape` (kAnySize matches all).
  ArgumentCheck& Tensor(const char* name, const TensorView& view,
                        std::initializer_list<DType> types, std::initializer_list<int64_t> shape,
                        Stride stride = Stride::kDense);
  // The same, unless the view is empty.
  ArgumentCheck& Optional(const char* name, const TensorView& view,
                          std::initializer_list<DType> types, std::initializer_list<int64_t> shape,
                          Stride stride = Stride::kDense);
  ArgumentCheck& Workspace(const TensorView& view, int64_t need_bytes);
  ArgumentCheck& That(bool fits, const char* name, const char* must);

  absl::Status status() { return std::move(status_); }
  bool ok() const { return status_.ok(); }

 private:
  void Fail(const char* name, const std::string& reason);

  const char* op_;
  absl::Status status_;
};

// "[3, 64] float32", for errors.
std::string DescribeTensor(const TensorView& view);

}  // namespace tessera::kernels
