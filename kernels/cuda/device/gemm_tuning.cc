#include "kernels/cuda/device/gemm_tuning.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <vector>

#include "kernels/cuda/launch/linear_shapes.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

constexpr int64_t kMinRows = 8;  // of the smallest choice; it serves fewer, too

int64_t Bucket(int64_t rows) {
  return std::max(kMinRows, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows))));
}

int64_t Aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// Where the parts of a measured product are in memory, behind copies of its weights.
struct Places {
  int64_t weights = 0, copies = 1;  // bytes of one copy
  int64_t in = 0, parts = 0, arrivals = 0, out = 0, end = 0;
};

Places PlacesOf(const LinearParams& product, int64_t part_bytes, const LaunchTuner& tuner) {
  Places places = {.weights = Aligned(product.columns * product.weight_row_bytes)};
  places.copies = tuner.Copies(places.weights);
  places.in = places.copies * places.weights;
  places.parts = places.in + Aligned(2 * product.rows * product.in_stride);
  places.arrivals = places.parts + Aligned(part_bytes);
  places.out = places.arrivals + Aligned(kMaxSplitTiles * int64_t{sizeof(int32_t)});
  places.end = places.out + Aligned(product.rows * product.out_stride * int64_t{sizeof(float)});
  return places;
}

}  // namespace

GemmTuning::Key GemmTuning::KeyOf(const LinearParams& product, int64_t rows) {
  return {product.weight_dtype, product.e2m1,  product.group_size, product.blocks.size,
          product.columns,      product.depth, Bucket(rows)};
}

GemmChoice GemmTuning::Measure(const LinearParams& product, const Key& key) const {
  const GemmProblem problem = {.rows = product.rows,
                               .columns = product.columns,
                               .weights = product.weight_dtype,
                               .capability = product.capability,
                               .multiprocessors = product.multiprocessors};
  const std::vector<GemmChoice> choices = GemmChoices(problem, product.group_size);
  const GemmSplit split = ChooseGemmSplit(product.columns, product.depth, product.weight_dtype);
  const int64_t part_bytes =
      product.rows <= kMaxSplitRows ? GemmPartBytes(split, product.rows, product.columns) : 0;
  const Places places = PlacesOf(product, part_bytes, *tuner_);
  const std::vector<int32_t> zeros(kMaxSplitTiles);
  const auto launch = [&](int choice, int call, std::byte* memory, cudaStream_t stream) {
    LinearParams params = product;
    params.weights = memory + call % places.copies * places.weights;
    params.in = memory + places.in;
    params.out = memory + places.out;
    if (part_bytes > 0) {
      params.part_sums = reinterpret_cast<float*>(memory + places.parts);
      params.arrivals = reinterpret_cast<int32_t*>(memory + places.arrivals);
    }
    params.choice = choices[static_cast<size_t>(choice)];
    if (call == 0) {
      const cudaError_t cleared =
          cudaMemcpyAsync(memory + places.arrivals, zeros.data(), zeros.size() * sizeof(int32_t),
                          cudaMemcpyHostToDevice, stream);
      if (cleared != cudaSuccess) return cleared;
    }
    return LaunchGemm(params, stream);
  };
  const std::string name =
      StrCat("gemm/", tessera::kernels::Name(key.weights), key.e2m1 ? "-e2m1" : "", "/",
             key.group_size, "/", key.block_size, "/", key.columns, "x", key.depth, "/", key.rows);
  const int chosen = tuner_->Choose(name, static_cast<int>(choices.size()), places.end, launch);
  return choices[static_cast<size_t>(chosen)];
}

void GemmTuning::Prepare(const LinearParams& product, int64_t max_rows) {
  if (tuner_ == nullptr) return;
  const std::lock_guard lock(mutex_);
  for (int64_t rows = kMinRows; rows <= Bucket(max_rows); rows *= 2) {
    const Key key = KeyOf(product, rows);
    const auto [choice, fresh] = choices_.try_emplace(key);
    LinearParams measured = product;
    measured.rows = rows;  // of the key: what is kept depends on no other number of rows
    if (fresh) choice->second = Measure(measured, key);
  }
  tuner_->Save();
}

GemmChoice GemmTuning::Find(const LinearParams& product) const {
  if (tuner_ == nullptr) return {};
  const std::shared_lock lock(mutex_);
  const auto found = choices_.find(KeyOf(product, product.rows));
  return found == choices_.end() ? GemmChoice() : found->second;
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
