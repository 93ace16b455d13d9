#include "kernels/cuda/device/blas_products.h"

#include <algorithm>
#include <bit>
#include <set>
#include <tuple>

#include "third_party/absl/str_cat.h"
#include "third_party/spdlog/log.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

// What NVIDIA advises for Hopper; others take less.
constexpr int64_t kMaxWorkspaceBytes = int64_t{32} << 20;

// Matrices begin at multiples of it, whatever lies before them in an arena or a row. The library
// assumes 256 by itself; no tensor core needs more than this.
constexpr uint32_t kAlignment = 16;

bool IsAligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % kAlignment == 0; }

// The fastest of so many is taken.
constexpr int kMeasuredSuggestions = 8;

int TypeOf(DType type) {
  switch (type) {
    case DType::kF16: return kBlasFloat16;
    case DType::kBF16: return kBlasBFloat16;
    default: return kBlasFloat32;
  }
}

int64_t Bucket(int64_t rows) {
  const auto ceiled = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows)));
  return std::max(ceiled, BlasProducts::kMinRows);
}

}  // namespace

// To the library matrices lie column below column: our weights are a [depth, columns] one that it
// transposes, our rows are columns of the others.
struct BlasProducts::Plan {
  // Rows of a call, and its strides. The algorithm was suggested for the most rows, without gaps.
  using Extents = std::tuple<int64_t, int64_t, int64_t>;

  const BlasTable& blas;
  BlasProduct product = nullptr;
  BlasLayout weights = nullptr, in = nullptr, out = nullptr;
  BlasAlgorithm algorithm = {};
  int64_t workspace_bytes = 0;
  const Shape shape;
  std::mutex mutex;  // over the descriptors, which a launch fills in, and what was refused
  std::set<Extents> refused;

  Plan(const BlasTable& table, const Shape& product_shape) : blas(table), shape(product_shape) {}
  void Take(const BlasSuggestion& suggestion) {
    algorithm = suggestion.algorithm;
    workspace_bytes = static_cast<int64_t>(suggestion.workspace_bytes);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    for (BlasLayout layout : {weights, in, out}) {
      if (layout != nullptr) blas.LayoutDestroy(layout);
    }
    if (product != nullptr) blas.ProductDestroy(product);
  }
};

absl::StatusOr<std::unique_ptr<BlasProducts>> BlasProducts::Create(const BlasTable& table) {
  BlasHandle handle = nullptr;
  const BlasStatus status = table.Create(&handle);
  if (status != kBlasSuccess) {
    return absl::InternalError(StrCat("cublasLtCreate: cuBLAS status ", status));
  }
  return std::unique_ptr<BlasProducts>(new BlasProducts(table, handle));
}

BlasProducts::BlasProducts(const BlasTable& table, BlasHandle handle)
    : blas_(table), handle_(handle) {}

BlasProducts::~BlasProducts() {
  plans_.clear();
  blas_.Destroy(handle_);
}

std::unique_ptr<BlasProducts::Plan> BlasProducts::MakePlan(const Key& key) {
  const Shape& shape = key.shape;
  auto plan = std::make_unique<Plan>(blas_, shape);
  BlasStatus status = blas_.ProductCreate(&plan->product, kBlasComputeFloat32, kBlasFloat32);
  const auto then = [&](auto call) {
    if (status == kBlasSuccess) status = call();
  };
  const auto set = [&](int attribute, int32_t value) {
    then([&] { return blas_.ProductSet(plan->product, attribute, &value, sizeof value); });
  };
  set(kBlasProductTransposeA, kBlasTransposed);
  if (shape.bias) set(kBlasProductEpilogue, kBlasEpilogueBias);
  const auto layout = [&](BlasLayout* made, DType type, int64_t rows, int64_t columns,
                          int64_t stride) {
    then([&] {
      return blas_.LayoutCreate(made, TypeOf(type), static_cast<uint64_t>(rows),
                                static_cast<uint64_t>(columns), stride);
    });
  };
  layout(&plan->weights, shape.type, shape.depth, shape.columns, shape.weight_stride);
  layout(&plan->in, shape.type, shape.depth, key.rows, (shape.depth + 7) / 8 * 8);
  layout(&plan->out, shape.out, shape.columns, key.rows, shape.columns);
  if (status != kBlasSuccess) return nullptr;
  const std::vector<BlasSuggestion> suggestions = Suggestions(*plan);
  if (suggestions.empty()) return nullptr;
  plan->Take(suggestions[Fastest(key, *plan, suggestions)]);
  return plan;
}

std::vector<BlasSuggestion> BlasProducts::Suggestions(Plan& plan) const {
  BlasPreference preference = nullptr;
  BlasStatus status = blas_.PreferenceCreate(&preference);
  if (status != kBlasSuccess) return {};
  const auto most = static_cast<uint64_t>(kMaxWorkspaceBytes);
  status = blas_.PreferenceSet(preference, kBlasPreferenceWorkspaceBytes, &most, sizeof most);
  for (const int matrix : {kBlasPreferenceAlignmentA, kBlasPreferenceAlignmentB,
                           kBlasPreferenceAlignmentC, kBlasPreferenceAlignmentD}) {
    if (status == kBlasSuccess) {
      status = blas_.PreferenceSet(preference, matrix, &kAlignment, sizeof kAlignment);
    }
  }
  std::vector<BlasSuggestion> suggestions(tuner_ == nullptr ? 1 : kMeasuredSuggestions);
  int found = 0;
  if (status == kBlasSuccess) {
    status =
        blas_.Suggest(handle_, plan.product, plan.weights, plan.in, plan.out, plan.out, preference,
                      static_cast<int>(suggestions.size()), suggestions.data(), &found);
  }
  blas_.PreferenceDestroy(preference);
  suggestions.resize(status == kBlasSuccess ? static_cast<size_t>(std::max(found, 0)) : 0);
  std::erase_if(suggestions, [](const BlasSuggestion& one) { return one.state != kBlasSuccess; });
  return suggestions;
}

size_t BlasProducts::Fastest(const Key& key, Plan& plan,
                             const std::vector<BlasSuggestion>& suggestions) {
  if (tuner_ == nullptr) return 0;
  const Shape& shape = key.shape;
  const auto aligned = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  const int64_t in_stride = (shape.depth + 7) / 8 * 8;
  const int64_t weights = aligned(2 * shape.columns * shape.weight_stride);
  const int64_t copies = tuner_->Copies(weights);
  const int64_t in = copies * weights, bias = in + aligned(2 * key.rows * in_stride);
  const int64_t out = bias + aligned(4 * shape.columns);
  const int64_t workspace = out + aligned(4 * key.rows * shape.columns);
  const auto launch = [&](int choice, int call, std::byte* memory, cudaStream_t stream) {
    plan.Take(suggestions[static_cast<size_t>(choice)]);
    const Call product = {
        .products = this,
        .plan = &plan,
        .out = memory + out,
        .in = memory + in,
        .weights = memory + call % copies * weights,
        .bias = shape.bias ? reinterpret_cast<const float*>(memory + bias) : nullptr,
        .workspace = memory + workspace,
        .rows = key.rows,
        .out_stride = shape.columns,
        .in_stride = in_stride,
        .workspace_bytes = plan.workspace_bytes};
    return Multiply(product, stream) == kBlasSuccess ? cudaSuccess : cudaErrorInvalidValue;
  };
  const std::string name = StrCat("cublaslt/", tessera::kernels::Name(shape.type), "/",
                                  tessera::kernels::Name(shape.out), shape.bias ? "/bias" : "", "/",
                                  shape.columns, "x", shape.depth, "/", key.rows);
  return static_cast<size_t>(tuner_->Choose(name, static_cast<int>(suggestions.size()),
                                            workspace + kMaxWorkspaceBytes, launch));
}

int64_t BlasProducts::Prepare(const Shape& shape, int64_t max_rows) {
  const std::lock_guard<std::mutex> lock(mutex_);
  int64_t workspace_bytes = 0;
  for (int64_t rows = kMinRows; rows <= Bucket(max_rows); rows *= 2) {
    const Key key = {shape, rows};
    auto [plan, fresh] = plans_.try_emplace(key);
    if (fresh) plan->second = MakePlan(key);
    if (plan->second != nullptr) {
      workspace_bytes = std::max(workspace_bytes, plan->second->workspace_bytes);
    }
  }
  if (tuner_ != nullptr) tuner_->Save();
  return workspace_bytes;
}

BlasProducts::Plan* BlasProducts::Find(const Shape& shape, int64_t rows) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto plan = plans_.find({shape, Bucket(rows)});
  return plan == plans_.end() ? nullptr : plan->second.get();
}

BlasStatus BlasProducts::Multiply(const Call& call, cudaStream_t stream) const {
  Plan& plan = *call.plan;
  BlasStatus status = kBlasSuccess;
  const auto set = [&](BlasLayout layout, int attribute, const auto& value) {
    if (status == kBlasSuccess) status = blas_.LayoutSet(layout, attribute, &value, sizeof value);
  };
  const auto rows = static_cast<uint64_t>(call.rows);
  set(plan.in, kBlasLayoutColumns, rows);
  set(plan.in, kBlasLayoutLeadingDimension, call.in_stride);
  set(plan.out, kBlasLayoutColumns, rows);
  set(plan.out, kBlasLayoutLeadingDimension, call.out_stride);
  if (status == kBlasSuccess && call.bias != nullptr) {
    status = blas_.ProductSet(plan.product, kBlasProductBiasPointer, &call.bias, sizeof call.bias);
  }
  if (status != kBlasSuccess) return status;
  const float one = 1, zero = 0;
  return blas_.Multiply(handle_, plan.product, &one, call.weights, plan.weights, call.in, plan.in,
                        &zero, call.out, plan.out, call.out, plan.out, &plan.algorithm,
                        call.workspace, static_cast<size_t>(call.workspace_bytes), stream);
}

int64_t BlasProducts::WorkspaceBytes(const Plan& plan) { return plan.workspace_bytes; }

bool BlasProducts::Launch(const Call& call, cudaStream_t stream) {
  Plan& plan = *call.plan;
  if (!IsAligned(call.weights) || !IsAligned(call.in) || !IsAligned(call.out)) return false;
  const std::lock_guard<std::mutex> lock(plan.mutex);
  const Plan::Extents extents = {call.rows, call.in_stride, call.out_stride};
  if (plan.refused.contains(extents)) return false;
  const BlasStatus status = call.products->Multiply(call, stream);
  if (status == kBlasSuccess) return true;
  cudaGetLastError();  // or the next launch of this thread would return it
  if (plan.refused.empty()) {
    Logger("kernels").warn(
        "cuBLASLt refuses {} rows (strides {} and {}) with {} weights [{}, {}], status {}: our "
        "GEMM "
        "computes this product, and others with such weights that the library refuses",
        call.rows, call.in_stride, call.out_stride, Name(plan.shape.type), plan.shape.columns,
        plan.shape.depth, status);
  }
  plan.refused.insert(extents);
  return false;
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
