#include "kernels/cuda/device/slow_kernels.h"

#include "kernels/cuda/device/attention_choice.h"
#include "kernels/cuda/launch/code_attention_shapes.h"
#include "kernels/cuda/launch/gpu_limits.h"
#include "kernels/kv_rows.h"
#include "third_party/absl/str_cat.h"
#include "third_party/spdlog/log.h"

namespace tessera::kernels::cuda {
namespace {

bool HasManyRows(const LinearProblem& problem) {
  const int64_t of_expert = (problem.rows + problem.experts - 1) / problem.experts;
  return of_expert > MaxGemvRows(problem.weights);
}

// Activations and weights, as a linear takes them.
std::string TypesOf(const LinearProblem& problem) {
  const bool rounds = problem.in == DType::kF32 && problem.products != DType::kF32;
  return StrCat(Name(problem.in), " activations",
                rounds ? StrCat(", multiplied as ", Name(problem.products), ",") : "", " and ",
                Name(problem.weights), " weights");
}

}  // namespace

std::string WhySlowLinear(const LinearProblem& problem, int capability) {
  const LinearKernel kernel = ChooseLinear(problem, capability);
  if (kernel == LinearKernel::kTensorCores) return "";
  if (kernel == LinearKernel::kGemv) {
    if (!HasManyRows(problem)) return "";
    return StrCat("GEMV computes it, which reads the weights again for each ",
                  MaxGemvRows(problem.weights), " rows: tensor cores do not take ",
                  TypesOf(problem));
  }
  if (problem.weights == DType::kF32) {
    return "the plain kernel computes it: float32 weights are summed in one order";
  }
  if (IsCodes(problem.weights) && problem.group_size % kGemmWindow != 0) {
    return StrCat("the plain kernel computes it: groups of ", problem.group_size, " ",
                  Name(problem.weights), " weights share a scale, fast ones take multiples of ",
                  kGemmWindow);
  }
  return StrCat("the plain kernel computes it: fast ones do not take ", TypesOf(problem));
}

std::string WhySlowAttention(const AttentionArgs& args, int capability) {
  const char* const start = "the plain kernel computes it: ";
  const int64_t head_dim = args.q.shape[2];
  const DType cached = args.cache.keys.dtype;
  const bool multiplied =
      args.products == DType::kF16 || (args.products == DType::kBF16 && capability >= kAmpere);
  if (HasKvScales(cached) && multiplied) {
    return HasCodeAttention(head_dim, kCodeTileKeys)
               ? StrCat(start, "blocks of ", args.cache.keys.shape[2], " tokens in ", Name(cached))
               : StrCat(start, "heads of ", head_dim, " in ", Name(cached));
  }
  switch (ChooseAttention(args, capability)) {
    case AttentionChoice::kTensorCores: return "";
    case AttentionChoice::kPlainType:
      return StrCat(start, Name(args.cache.keys.dtype), " keys, ", Name(args.q.dtype),
                    " queries, multiplied as ", Name(args.products));
    case AttentionChoice::kPlainHead: return StrCat(start, "heads of ", head_dim);
    case AttentionChoice::kPlainAlignment: return StrCat(start, "rows that are not aligned");
  }
  return "";
}

void SlowKernels::Log(std::string_view op, std::string why) {
  std::string line = StrCat(op, ": ", why);
  if (why.empty() || !logged_.insert(line).second) return;
  Logger("kernels").warn("{}: {}", device_, line);
}

void SlowKernels::Note(const char* op, const LinearProblem& problem, LinearKernel kernel,
                       int capability) {
  const bool fast = kernel == LinearKernel::kTensorCores ||
                    (kernel == LinearKernel::kGemv && !HasManyRows(problem));
  if (fast) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto seen =
      seen_.emplace(op, problem.in, problem.weights, problem.products, problem.group_size, kernel);
  if (seen.second) Log(op, WhySlowLinear(problem, capability));
}

void SlowKernels::Note(const char* op, const AttentionArgs& args, int capability) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Log(op, WhySlowAttention(args, capability));
}

}  // namespace tessera::kernels::cuda
