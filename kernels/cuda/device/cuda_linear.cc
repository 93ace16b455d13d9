#include "kernels/cuda/device/cuda_linear.h"

#include <algorithm>

#include "kernels/cuda/device/weight_rows.h"
#include "kernels/cuda/launch/linear_shapes.h"
#include "kernels/cuda/linear/linear_kernels.h"
#include "kernels/cuda/plain/plain_kernels.h"
#include "kernels/ops_check.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

int64_t RoundedStride(int64_t width) { return (width + 7) / 8 * 8; }

LinearProblem ProblemOf(const LinearSpec& spec, DType in, DType products, int64_t rows,
                        int64_t experts) {
  return {.in = in,
          .weights = KeptType(spec),
          .products = products,
          .group_size = spec.group_size,
          .rows = rows,
          .experts = experts};
}

// Whether tensor cores can read these rows as they are.
bool IsAligned(const TensorView& rows) {
  return SizeInBytes(rows.dtype) == 2 && rows.shape[1] % 8 == 0 && rows.row_stride % 8 == 0 &&
         reinterpret_cast<uintptr_t>(rows.data) % 16 == 0;
}

// The alignment of a workspace of cuBLASLt; ours begin at multiples of 64.
constexpr int64_t kBlasAlignment = 256;

int64_t Aligned(int64_t bytes) {
  return (bytes + kBlasAlignment - 1) / kBlasAlignment * kBlasAlignment;
}

std::byte* AlignedForBlas(std::byte* data) {
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data));
  return data + (Aligned(address) - address);
}

// Bytes of the workspace, to round these rows for tensor cores; 0 where these take them as they
// are.
int64_t RoundedBytes(const TensorView& in) {
  return IsAligned(in) ? 0 : Aligned(in.rows() * RoundedStride(in.shape[1]) * 2);
}

// Bytes of the workspace for sums of parts of the depth.
int64_t PartBytes(const LinearSpec& spec, int64_t rows) {
  const GemmSplit split = ChooseGemmSplit(spec.out_features, spec.in_features, KeptType(spec));
  return GemmPartBytes(split, rows, spec.out_features);
}

BlasProducts::Shape ShapeOf(const LinearSpec& spec, DType out, bool bias) {
  return {.type = spec.weight_dtype,
          .out = out,
          .bias = bias,
          .columns = spec.out_features,
          .depth = spec.in_features,
          .weight_stride = WeightRowBytes(spec) / SizeInBytes(spec.weight_dtype)};
}

// What both kinds of kernels take: `Params` is MatmulParams or LinearParams.
template <typename Params>
Params ParamsOf(const PackedWeights& weights, const TensorView& out, const TensorView& in) {
  const LinearSpec& spec = weights.spec;
  Params params;
  params.out = out.data;
  params.in = in.data;
  params.weights = weights.data;
  params.rows = out.rows();
  params.columns = spec.out_features;
  params.depth = spec.in_features;
  params.out_stride = out.row_stride;
  params.in_stride = in.row_stride;
  params.weight_row_bytes = WeightRowBytes(spec);
  params.scales_offset_bytes = ScalesOffsetBytes(spec);
  params.steps_offset_bytes = StepsOffsetBytes(spec);
  params.group_size = spec.group_size;
  params.blocks = spec.blocks;
  params.weight_dtype = KeptType(spec);
  params.e2m1 = spec.e2m1;
  params.in_dtype = in.dtype;
  params.out_dtype = out.dtype;
  return params;
}

// Rounds the rows for tensor cores where they need it; returns what these read.
TensorView EnqueueRounding(const char* op, const TensorView& in, DType type,
                           const TensorView& workspace, CudaStream& stream) {
  if (IsAligned(in)) return in;
  TensorView rounded(workspace.data, type, {in.rows(), in.shape[1]});
  rounded.row_stride = RoundedStride(in.shape[1]);
  const RoundRowsParams params = {.out = rounded.data,
                                  .in = in.data,
                                  .rows = in.rows(),
                                  .width = in.shape[1],
                                  .out_stride = rounded.row_stride,
                                  .in_stride = in.row_stride,
                                  .in_dtype = in.dtype,
                                  .out_dtype = type};
  stream.Enqueue(op, &LaunchRoundRows, params);
  return rounded;
}

// A product for cuBLASLt, and the same one for our GEMM.
struct DenseCall {
  BlasProducts::Call blas;
  LinearParams own;
};

// By the library where it takes the call.
cudaError_t LaunchDense(const DenseCall& call, cudaStream_t stream) {
  return BlasProducts::Launch(call.blas, stream) ? cudaSuccess : LaunchGemm(call.own, stream);
}

// How many experts from `first` on lie at equal distances, which one launch can step by.
size_t EvenlySpaced(absl::Span<const PackedWeights> experts, size_t first) {
  size_t end = first + 1;
  while (end < experts.size() && experts[end].data - experts[end - 1].data ==
                                     experts[first + 1].data - experts[first].data) {
    ++end;
  }
  return end - first;
}

}  // namespace

DType CudaLinear::Inputs(const LinearSpec& spec, int64_t rows, DType products) const {
  if (rows < 1 || spec.in_features % 8 != 0) return DType::kF32;  // rows as IsAligned wants them
  const LinearProblem problem = ProblemOf(spec, DType::kF32, products, rows, 1);
  const bool tensor_cores = ChooseLinear(problem, capability_) == LinearKernel::kTensorCores;
  return tensor_cores ? TensorCoreType(problem, capability_) : DType::kF32;
}

bool CudaLinear::FusesSiluGate(const LinearSpec& spec, int64_t rows, DType products) const {
  if (rows < 1 || spec.out_features % 2 != 0) return false;
  const LinearProblem problem = ProblemOf(spec, DType::kF32, products, rows, 1);
  return ChooseLinear(problem, capability_) == LinearKernel::kGemv;
}

int64_t CudaLinear::GroupedWorkspaceBytes(const LinearSpec& spec, int64_t rows) const {
  if (spec.weight_dtype == DType::kF32) return 0;
  return Aligned(rows * RoundedStride(spec.in_features) * 2);
}

int64_t CudaLinear::WorkspaceBytes(const LinearSpec& spec, int64_t rows, DType in) const {
  const int64_t rounded = GroupedWorkspaceBytes(spec, rows);
  const LinearProblem problem = ProblemOf(spec, in, spec.weight_dtype, rows, 1);
  if (spec.weight_dtype == DType::kF32) return rounded;
  const int64_t parts = PartBytes(spec, std::min(rows, kMaxSplitRows));
  const bool dense = TensorCoreType(problem, capability_) == spec.weight_dtype;
  if (blas_ == nullptr || !dense) return rounded + parts;
  int64_t most = parts;
  for (const bool bias : {false, true}) {
    if (bias && in != DType::kF32) continue;
    most = std::max(most, blas_->Prepare(ShapeOf(spec, in, bias), rows));
  }
  return rounded + kBlasAlignment + most;
}

BlasProducts::Plan* CudaLinear::FindPlan(const LinearArgs& args, DType type) const {
  const LinearSpec& spec = args.weights->spec;
  const bool bias = !args.bias.empty();
  const bool fits = type == spec.weight_dtype && (!bias || args.out.dtype == DType::kF32);
  if (blas_ == nullptr || !fits) return nullptr;
  return blas_->Find(ShapeOf(spec, args.out.dtype, bias), args.in.rows());
}

absl::Status CudaLinear::Enqueue(const LinearArgs& args, CudaStream& stream) const {
  const bool fuses = args.silu_gate && args.weights != nullptr && args.in.dtype == DType::kF32 &&
                     args.out.dtype == DType::kF32 &&
                     FusesSiluGate(args.weights->spec, args.in.rows(), args.products);
  if (absl::Status check = CheckLinear(args, 0, fuses); !check.ok()) return check;
  const LinearProblem problem =
      ProblemOf(args.weights->spec, args.in.dtype, args.products, args.in.rows(), 1);
  const LinearKernel kernel = ChooseLinear(problem, capability_);
  slow_->Note("Linear", problem, kernel, capability_);
  if (kernel == LinearKernel::kPlain) {
    auto params = ParamsOf<MatmulParams>(*args.weights, args.out, args.in);
    params.bias = args.bias.As<float>();
    stream.Enqueue("Linear", &LaunchMatmul, params);
    return absl::OkStatus();
  }
  if (kernel == LinearKernel::kGemv) {
    auto params = ParamsOf<LinearParams>(*args.weights, args.out, args.in);
    params.bias = args.bias.As<float>();
    params.silu_gate = args.silu_gate;
    stream.Enqueue("Linear", &LaunchGemv, params);
    return absl::OkStatus();
  }
  const DType type = TensorCoreType(problem, capability_);
  BlasProducts::Plan* const plan = FindPlan(args, type);
  const int64_t rounded_bytes = RoundedBytes(args.in);
  const int64_t plan_bytes = plan == nullptr ? 0 : BlasProducts::WorkspaceBytes(*plan);
  const int64_t blas_bytes = plan == nullptr ? 0 : kBlasAlignment + plan_bytes;
  const bool may_split = args.in.rows() <= kMaxSplitRows;
  const int64_t part_bytes = may_split ? PartBytes(args.weights->spec, args.in.rows()) : 0;
  absl::Status check = CheckLinear(args, rounded_bytes + std::max(part_bytes, blas_bytes));
  if (!check.ok()) return check;
  const TensorView in = EnqueueRounding("Linear", args.in, type, args.workspace, stream);
  auto params = ParamsOf<LinearParams>(*args.weights, args.out, in);
  params.bias = args.bias.As<float>();
  if (part_bytes > 0) {
    params.part_sums = reinterpret_cast<float*>(args.workspace.data + rounded_bytes);
    params.arrivals = stream.arrivals();
  }
  params.capability = capability_;
  params.multiprocessors = multiprocessors_;
  if (plan == nullptr) {
    stream.Enqueue("Linear", &LaunchGemm, params);
    return absl::OkStatus();
  }
  const BlasProducts::Call call = {.products = blas_,
                                   .plan = plan,
                                   .out = args.out.data,
                                   .in = in.data,
                                   .weights = args.weights->data,
                                   .bias = args.bias.As<float>(),
                                   .workspace = AlignedForBlas(args.workspace.data + rounded_bytes),
                                   .rows = args.in.rows(),
                                   .out_stride = args.out.row_stride,
                                   .in_stride = in.row_stride,
                                   .workspace_bytes = plan_bytes};
  stream.Enqueue("Linear by cuBLASLt", &LaunchDense, DenseCall{.blas = call, .own = params});
  return absl::OkStatus();
}

absl::Status CudaLinear::Enqueue(const GroupedLinearArgs& args, CudaStream& stream) const {
  if (absl::Status check = CheckGroupedLinear(args, 0); !check.ok()) return check;
  const LinearProblem problem =
      ProblemOf(args.experts[0].spec, args.in.dtype, args.products, args.out.rows(),
                static_cast<int64_t>(args.experts.size()));
  const LinearKernel kernel = ChooseLinear(problem, capability_);
  slow_->Note("GroupedLinear", problem, kernel, capability_);
  const bool rounds = kernel == LinearKernel::kTensorCores;
  absl::Status check = CheckGroupedLinear(args, rounds ? RoundedBytes(args.in) : 0);
  if (!check.ok()) return check;
  if (kernel == LinearKernel::kPlain) {
    for (size_t e = 0; e < args.experts.size(); ++e) {
      auto params = ParamsOf<MatmulParams>(args.experts[e], args.out, args.in);
      params.row_range = args.expert_offsets.As<int32_t>() + e;
      params.source_rows = args.source_rows.As<int32_t>();
      stream.Enqueue("GroupedLinear", &LaunchMatmul, params);
    }
    return absl::OkStatus();
  }
  TensorView in = args.in;
  if (kernel == LinearKernel::kTensorCores) {
    in = EnqueueRounding("GroupedLinear", in, TensorCoreType(problem, capability_), args.workspace,
                         stream);
  }
  for (size_t e = 0; e < args.experts.size();) {
    const size_t count = EvenlySpaced(args.experts, e);
    auto params = ParamsOf<LinearParams>(args.experts[e], args.out, in);
    params.expert_offsets = args.expert_offsets.As<int32_t>() + e;
    params.source_rows = args.source_rows.As<int32_t>();
    params.experts = static_cast<int64_t>(count);
    params.expert_bytes = count > 1 ? args.experts[e + 1].data - args.experts[e].data : 0;
    params.capability = capability_;
    params.multiprocessors = multiprocessors_;
    stream.Enqueue("GroupedLinear", kernel == LinearKernel::kGemv ? &LaunchGemv : &LaunchGemm,
                   params);
    e += count;
  }
  return absl::OkStatus();
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
