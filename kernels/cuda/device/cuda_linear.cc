#include "kernels/cuda/device/cuda_linear.h"

#include <algorithm>
#include <array>

#include "kernels/cuda/device/weight_rows.h"
#include "kernels/cuda/launch/gpu_limits.h"
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

constexpr int64_t kWeightAlignment = 16;  // of a row

// Some columns of a matrix, as 16-bit weights.
LinearSpec WidenedSpec(const LinearSpec& spec, DType type, int64_t columns) {
  return {.in_features = spec.in_features, .out_features = columns, .weight_dtype = type};
}

int64_t WidenedWeightBytes(const LinearSpec& spec, int64_t columns) {
  return Aligned(columns * WeightRowBytes(WidenedSpec(spec, DType::kBF16, columns)));
}

// Columns of each of the first times, `columns` of them, and of the last time.
std::array<int64_t, 2> ColumnCounts(int64_t all, int64_t columns) {
  return {std::min(all, columns), (all - 1) % columns + 1};
}

// Heads as experts with as many rows each.
LinearProblem HeadProblem(const HeadLinearArgs& args) {
  return ProblemOf(args.heads[0].spec, args.in.dtype, args.products, args.in.rows(),
                   static_cast<int64_t>(args.heads.size()));
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
  const int64_t parts =
      std::max(PartBytes(spec, std::min(rows, kMaxSplitRows)), PrepareWidened(spec, rows, in));
  const bool dense = TensorCoreType(problem, capability_) == spec.weight_dtype;
  if (blas_ == nullptr || !dense) PrepareGemm(spec, rows);
  if (blas_ == nullptr || !dense) return rounded + parts;
  int64_t most = parts;
  for (const bool bias : {false, true}) {
    if (bias && in != DType::kF32) continue;
    most = std::max(most, blas_->Prepare(ShapeOf(spec, in, bias), rows));
  }
  return rounded + kBlasAlignment + most;
}

void CudaLinear::PrepareGemm(const LinearSpec& spec, int64_t rows) const {
  const DType half = capability_ >= kAmpere ? DType::kBF16 : DType::kF16;
  const DType type = IsCodes(KeptType(spec)) ? half : spec.weight_dtype;
  const LinearProblem problem = ProblemOf(spec, DType::kF32, type, rows, 1);
  if (TensorCoreType(problem, capability_) != type || rows <= MaxGemvRows(KeptType(spec))) return;
  const bool widened = blas_ != nullptr && WidensCodes(problem, capability_);
  LinearParams product = ParamsOf<LinearParams>(
      {.spec = spec, .data = nullptr}, TensorView(nullptr, DType::kF32, {1, spec.out_features}),
      TensorView(nullptr, type, {1, RoundedStride(spec.in_features)}));
  product.capability = capability_;
  product.multiprocessors = multiprocessors_;
  tuning_->Prepare(product, widened ? kMinWidenedRows - 1 : rows);
}

BlasProducts::Plan* CudaLinear::FindPlan(const LinearArgs& args, DType type) const {
  const LinearSpec& spec = args.weights->spec;
  const bool bias = !args.bias.empty();
  const bool fits = type == spec.weight_dtype && (!bias || args.out.dtype == DType::kF32);
  if (blas_ == nullptr || !fits) return nullptr;
  return blas_->Find(ShapeOf(spec, args.out.dtype, bias), args.in.rows());
}

int64_t CudaLinear::PrepareWidened(const LinearSpec& spec, int64_t rows, DType in) const {
  const LinearProblem problem = ProblemOf(spec, in, DType::kF32, rows, 1);
  if (blas_ == nullptr || !WidensCodes(problem, capability_)) return 0;
  const int64_t columns = WidenedColumns(spec.out_features, spec.in_features, widened_bytes_);
  int64_t most = 0;
  for (const DType type : {DType::kBF16, DType::kF16}) {
    const bool multiplied = TensorCoreType(ProblemOf(spec, in, type, rows, 1), capability_) == type;
    for (const int64_t count : ColumnCounts(spec.out_features, columns)) {
      for (const bool bias : {false, true}) {
        if (!multiplied || (bias && in != DType::kF32)) continue;
        most =
            std::max(most, blas_->Prepare(ShapeOf(WidenedSpec(spec, type, count), in, bias), rows));
      }
    }
  }
  return WidenedWeightBytes(spec, columns) + kBlasAlignment + most;
}

int64_t CudaLinear::WidenedBytes(const LinearArgs& args, DType type) const {
  const LinearSpec& spec = args.weights->spec;
  const LinearProblem problem = ProblemOf(spec, args.in.dtype, type, args.in.rows(), 1);
  if (blas_ == nullptr || !WidensCodes(problem, capability_)) return 0;
  const int64_t columns = WidenedColumns(spec.out_features, spec.in_features, widened_bytes_);
  int64_t most = 0;
  for (const int64_t count : ColumnCounts(spec.out_features, columns)) {
    const BlasProducts::Plan* const plan =
        blas_->Find(ShapeOf(WidenedSpec(spec, type, count), args.out.dtype, !args.bias.empty()),
                    args.in.rows());
    if (plan == nullptr) return 0;
    most = std::max(most, BlasProducts::WorkspaceBytes(*plan));
  }
  return WidenedWeightBytes(spec, columns) + kBlasAlignment + most;
}

void CudaLinear::EnqueueWidened(const LinearArgs& args, const LinearParams& own,
                                std::byte* workspace, CudaStream& stream) const {
  const LinearSpec& spec = args.weights->spec;
  const int64_t columns = WidenedColumns(spec.out_features, spec.in_features, widened_bytes_);
  std::byte* const widened = AlignedForBlas(workspace);
  for (int64_t first = 0; first < spec.out_features; first += columns) {
    LinearParams part = own;
    part.columns = std::min(columns, spec.out_features - first);
    part.out = args.out.data + first * SizeInBytes(args.out.dtype);
    part.weights = args.weights->data + first * own.weight_row_bytes;
    if (own.bias != nullptr) part.bias = own.bias + first;
    const LinearSpec dense = WidenedSpec(spec, own.in_dtype, part.columns);
    const BlasProducts::Shape shape = ShapeOf(dense, args.out.dtype, own.bias != nullptr);
    const WidenParams widen = {.out = widened,
                               .weights = part.weights,
                               .columns = part.columns,
                               .depth = spec.in_features,
                               .out_stride = shape.weight_stride,
                               .weight_row_bytes = own.weight_row_bytes,
                               .scales_offset_bytes = own.scales_offset_bytes,
                               .group_size = own.group_size,
                               .steps_offset_bytes = own.steps_offset_bytes,
                               .blocks = own.blocks,
                               .weight_dtype = own.weight_dtype,
                               .out_dtype = own.in_dtype,
                               .e2m1 = own.e2m1};
    stream.Enqueue("Linear", &LaunchWiden, widen);
    BlasProducts::Plan* const plan = blas_->Find(shape, own.rows);
    const BlasProducts::Call call = {.products = blas_,
                                     .plan = plan,
                                     .out = part.out,
                                     .in = own.in,
                                     .weights = widened,
                                     .bias = part.bias,
                                     .workspace = widened + WidenedWeightBytes(spec, columns),
                                     .rows = own.rows,
                                     .out_stride = own.out_stride,
                                     .in_stride = own.in_stride,
                                     .workspace_bytes = BlasProducts::WorkspaceBytes(*plan)};
    stream.Enqueue("Linear by cuBLASLt", &LaunchDense, DenseCall{.blas = call, .own = part});
  }
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
  const int64_t widened_bytes = WidenedBytes(args, type);
  absl::Status check =
      CheckLinear(args, rounded_bytes + std::max({part_bytes, blas_bytes, widened_bytes}));
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
  params.choice = tuning_->Find(params);
  if (widened_bytes > 0) {
    EnqueueWidened(args, params, args.workspace.data + rounded_bytes, stream);
    return absl::OkStatus();
  }
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
  const DType type = TensorCoreType(problem, capability_);
  const bool hot = kernel == LinearKernel::kGemv && type != DType::kF32 &&
                   MayHaveHotExperts(problem, args.in.rows());
  const bool rounds = hot || kernel == LinearKernel::kTensorCores;
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
  TensorView rounded = args.in;
  if (rounds) {
    rounded = EnqueueRounding("GroupedLinear", args.in, type, args.workspace, stream);
  }
  for (size_t e = 0; e < args.experts.size();) {
    const size_t count = EvenlySpaced(args.experts, e);
    const bool gemv = kernel == LinearKernel::kGemv;
    auto params = ParamsOf<LinearParams>(args.experts[e], args.out, gemv ? args.in : rounded);
    params.expert_offsets = args.expert_offsets.As<int32_t>() + e;
    params.source_rows = args.source_rows.As<int32_t>();
    params.experts = static_cast<int64_t>(count);
    params.expert_bytes = count > 1 ? args.experts[e + 1].data - args.experts[e].data : 0;
    params.capability = capability_;
    params.multiprocessors = multiprocessors_;
    if (hot) params.max_expert_rows = MaxColdRows(problem.weights);
    stream.Enqueue("GroupedLinear", gemv ? &LaunchGemv : &LaunchGemm, params);
    if (hot) {
      params.in = rounded.data;
      params.in_stride = rounded.row_stride;
      params.in_dtype = rounded.dtype;
      params.min_expert_rows = params.max_expert_rows + 1;
      stream.Enqueue("GroupedLinear", &LaunchGemm, params);
    }
    e += count;
  }
  return absl::OkStatus();
}

bool CudaLinear::TakesHeads(const HeadLinearArgs& args) const {
  const auto heads = static_cast<int64_t>(args.heads.size());
  if (heads < 2 || args.in.rank != 2 || args.in.rows() == 0 || args.in.rows() % heads != 0) {
    return false;
  }
  const LinearSpec& spec = args.heads[0].spec;
  if (IsCodes(KeptType(spec))) return false;
  const bool alike = std::all_of(args.heads.begin(), args.heads.end(), [&](const auto& head) {
    return head.data != nullptr && head.spec == spec;
  });
  if (!alike || EvenlySpaced(args.heads, 0) != args.heads.size()) return false;
  if ((args.heads[1].data - args.heads[0].data) % kWeightAlignment != 0) return false;
  const LinearKernel kernel = ChooseLinear(HeadProblem(args), capability_);
  if (kernel == LinearKernel::kGemv) return true;
  return kernel == LinearKernel::kTensorCores &&
         RoundedBytes(args.in) <= args.workspace.Elements() * SizeInBytes(args.workspace.dtype);
}

absl::Status CudaLinear::Enqueue(const HeadLinearArgs& args, CudaStream& stream) const {
  const auto heads = static_cast<int64_t>(args.heads.size());
  LinearArgs all = {.out = args.out, .in = args.in, .weights = &args.heads[0]};
  all.products = args.products;
  if (absl::Status check = CheckLinear(all, 0); !check.ok()) return check;
  const LinearProblem problem = HeadProblem(args);
  const LinearKernel kernel = ChooseLinear(problem, capability_);
  slow_->Note("HeadLinear", problem, kernel, capability_);
  TensorView in = args.in;
  if (kernel == LinearKernel::kTensorCores) {
    in = EnqueueRounding("HeadLinear", in, TensorCoreType(problem, capability_), args.workspace,
                         stream);
  }
  auto params = ParamsOf<LinearParams>(args.heads[0], args.out, in);
  params.experts = heads;
  params.expert_bytes = args.heads[1].data - args.heads[0].data;
  params.head_rows = static_cast<int>(args.in.rows() / heads);
  params.capability = capability_;
  params.multiprocessors = multiprocessors_;
  stream.Enqueue("HeadLinear", kernel == LinearKernel::kGemv ? &LaunchGemv : &LaunchGemm, params);
  return absl::OkStatus();
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
