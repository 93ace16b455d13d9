#include "tests/kernels/linear_paths.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/linear/geometry.h"
#include "kernels/cpu/linear/linear_driver.h"
#include "kernels/cpu/linear/pack.h"
#include "kernels/cpu/linear/packed_linear.h"
#include "kernels/half_floats.h"
#include "tests/kernels/linear_emulated_tiles.h"
#include "tests/kernels/random_bytes.h"
#include "tests/kernels/random_int4.h"

namespace tessera::kernels {
namespace {

using cpu::linear::KernelFor;
using cpu::linear::KernelSet;

LinearPath PathOfIsa(Isa isa) {
  return {
      .name = std::string(Name(isa)),
      .packed_bytes = [isa](const LinearSpec& spec) { return cpu::PackedBytes(isa, spec); },
      .pack = [isa](const PackedWeights& w, int64_t row,
                    const TensorView& in) { return cpu::PackRows(isa, w, row, in); },
      .unpack = [isa](const PackedWeights& w, int64_t row,
                      const TensorView& out) { cpu::UnpackRows(isa, w, row, out); },
      .workspace_bytes =
          [isa](const LinearSpec& spec, int64_t rows) {
            return cpu::WorkspaceBytes(isa, spec, rows, TestPool().threads());
          },
      .run = [isa](const LinearArgs& args, ThreadPool& pool) { cpu::RunLinear(isa, args, pool); },
      .run_grouped = [isa](const GroupedLinearArgs& args,
                           ThreadPool& pool) { cpu::RunGroupedLinear(isa, args, pool); },
  };
}

LinearPath PathOfKernels(const KernelSet& set) {
  const KernelSet* kernels = &set;
  const auto kernel = [kernels](const LinearSpec& spec) -> const cpu::linear::Kernel& {
    return KernelFor(*kernels, spec.weight_dtype);
  };
  return {
      .name = kernels->name,
      .packed_bytes =
          [kernel](const LinearSpec& spec) {
            return cpu::linear::PackedPanelBytes(spec, kernel(spec));
          },
      .pack =
          [kernel](const PackedWeights& w, int64_t row, const TensorView& in) {
            return cpu::linear::PackPanels(kernel(w.spec), w, row, in);
          },
      .unpack =
          [kernel](const PackedWeights& w, int64_t row, const TensorView& out) {
            cpu::linear::UnpackPanels(kernel(w.spec), w, row, out);
          },
      .workspace_bytes =
          [kernels](const LinearSpec& spec, int64_t rows) {
            return cpu::linear::DriverWorkspaceBytes(*kernels, spec, rows, TestPool().threads());
          },
      .run = [kernels](const LinearArgs& args,
                       ThreadPool& pool) { cpu::linear::DriveLinear(*kernels, args, pool); },
      .run_grouped =
          [kernels](const GroupedLinearArgs& args, ThreadPool& pool) {
            cpu::linear::DriveGroupedLinear(*kernels, args, pool);
          },
  };
}

std::vector<LinearPath> FindPaths() {
  const CpuFeatures& features = DetectCpuFeatures();
  std::vector<LinearPath> paths;
  for (Isa isa : SupportedIsas(features)) {
    if (isa != Isa::kReference) paths.push_back(PathOfIsa(isa));
  }
  if (features.avx512_bf16) paths.push_back(PathOfKernels(cpu::linear::kEmulatedTileKernels));
  return paths;
}

ThreadPool* MakePool(int most_threads) {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  ThreadPool::Options options;
  options.cores_shared = true;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set) && static_cast<int>(options.cores.size()) < most_threads) {
      options.cores.push_back(core);
    }
  }
  return ThreadPool::Create(options).value().release();
}

}  // namespace

const std::vector<LinearPath>& LinearPaths() {
  static const std::vector<LinearPath> paths = FindPaths();
  return paths;
}

ThreadPool& TestPool() {
  static const std::unique_ptr<ThreadPool> pool(MakePool(4));
  return *pool;
}

ThreadPool& OneThread() {
  static const std::unique_ptr<ThreadPool> pool(MakePool(1));
  return *pool;
}

Memory::Memory(int64_t size_bytes) : storage_(size_bytes + 63, std::byte{0xff}) {
  const auto address = reinterpret_cast<uintptr_t>(storage_.data());
  aligned_ = storage_.data() + (64 - address % 64) % 64;
}

Matrix::Matrix(DType dtype, int64_t rows, int64_t columns, int64_t row_stride)
    : memory(rows * std::max(columns, row_stride) * SizeInBytes(dtype)),
      view(memory.data(), dtype, {rows, columns}) {
  view.row_stride = std::max(columns, row_stride);
}

void Matrix::FillNormal(std::mt19937& random, float deviation) {
  std::normal_distribution<float> normal(0.0f, deviation);
  for (int64_t row = 0; row < view.rows(); ++row) {
    for (int64_t column = 0; column < view.shape[1]; ++column) Set(row, column, normal(random));
  }
}

float Matrix::Get(int64_t row, int64_t column) const {
  if (view.dtype == DType::kF32) return view.Row<float>(row)[column];
  if (view.dtype == DType::kBF16) return ToFloat(view.Row<BFloat16>(row)[column]);
  return ToFloat(view.Row<Float16>(row)[column]);
}

void Matrix::Set(int64_t row, int64_t column, float value) {
  if (view.dtype == DType::kF32) {
    view.Row<float>(row)[column] = value;
  } else if (view.dtype == DType::kBF16) {
    view.Row<BFloat16>(row)[column] = FromFloat<BFloat16>(value);
  } else {
    view.Row<Float16>(row)[column] = FromFloat<Float16>(value);
  }
}

TestWeights::TestWeights(const LinearPath& path, const LinearSpec& spec, std::mt19937& random)
    : memory(path.packed_bytes(spec)),
      packed{spec, memory.data()},
      values(DType::kF32, spec.out_features, spec.in_features) {
  absl::Status status;
  if (spec.weight_dtype == DType::kI4) {
    const auto rows =
        RandomInt4(spec.out_features, spec.in_features, spec.group_size, random(), spec.blocks);
    status = path.pack(
        packed, 0,
        Int4Rows(rows, 0, spec.out_features, spec.in_features, spec.group_size, spec.blocks));
  } else if (spec.weight_dtype == DType::kF8) {
    const auto rows =
        RandomBytes(DType::kF8, spec.out_features, spec.in_features, spec.group_size, random());
    status = path.pack(packed, 0,
                       ByteRows(rows, 0, spec.out_features, spec.in_features, spec.group_size));
  } else {
    values.FillNormal(random);
    status = path.pack(packed, 0, values.view);
  }
  if (!status.ok()) std::abort();
  path.unpack(packed, 0, values.view);
}

float LargestMagnitude(const Matrix& matrix) {
  float largest = 0.0f;
  for (int64_t row = 0; row < matrix.view.rows(); ++row) {
    for (int64_t column = 0; column < matrix.view.shape[1]; ++column) {
      largest = std::max(largest, std::abs(matrix.Get(row, column)));
    }
  }
  return largest;
}

float LinearTolerance(DType activations, DType products) {
  return activations == DType::kF32 && products == DType::kF32 ? 1e-5f : 1e-2f;
}

}  // namespace tessera::kernels
