// Ops that a CUDA device computes by a slow kernel though there is a fast one, and why: the plain
// kernel, which reads weights once a tile of 16 rows and keys once a row, or GEMV with more rows
// than it is made for.
//
// The two reasons are pure functions. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "kernels/cuda/launch/linear_shapes.h"
#include "kernels/ops.h"

namespace tessera::kernels::cuda {

// For logs, such as "groups of 16 int4 weights share a scale, ...". Empty: a fast one computes it.
std::string WhySlowLinear(const LinearProblem& problem, int capability);
std::string WhySlowAttention(const AttentionArgs& args, int capability);

// Says each op and reason once in the log of "kernels".
class SlowKernels {
 public:
  explicit SlowKernels(std::string device) : device_(std::move(device)) {}

  // `op`: a literal.
  void Note(const char* op, const LinearProblem& problem, LinearKernel kernel, int capability);
  void Note(const char* op, const AttentionArgs& args, int capability);

 private:
  void Log(std::string_view op, std::string why);

  const std::string device_;
  std::mutex mutex_;
  std::set<std::string> logged_;
  // Linears that were looked at: they come again in each step.
  std::set<std::tuple<std::string_view, DType, DType, DType, int64_t, LinearKernel>> seen_;
};

}  // namespace tessera::kernels::cuda
