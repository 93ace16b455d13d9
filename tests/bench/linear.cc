// Speed of the CPU device's linear over the weights of a 1.1B Llama's layers (hidden 2048, ffn
// 5632), cold: more than 1 GB, each matrix in memory of its own.
//
// Few rows are bound by memory: printed as GB/s of packed weights and as the ratio to a read-only
// sum over the same memory on the same threads. Many rows are bound by arithmetic: printed as
// GFLOP/s and as the ratio to oneDNN's matmul with weights in the layout it likes best, same
// shapes, same threads, in f32 where oneDNN multiplies no bf16 on the processor. Ratios are medians
// of pairs measured in turn. A bar is part of the exit code: ratio at 1 row, and at 512 rows, where
// the table below has one.
//
//   linear [--isa=avx2|avx512|avx512_bf16|amx] [--pairs=N] [--only=TYPE]
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/linear/packed_linear.h"
#include "kernels/cpu/thread_pool.h"
#include "tests/bench/onednn_linear.h"
#include "tests/bench/read_sum.h"
#include "tests/kernels/random_int4.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kChainBytes = 1100 << 20;
constexpr LinearSpec kLayer[] = {{.in_features = 2048, .out_features = 2560},
                                 {.in_features = 2048, .out_features = 2048},
                                 {.in_features = 2048, .out_features = 11264},
                                 {.in_features = 5632, .out_features = 2048}};

double Seconds() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::byte* MapPages(int64_t size_bytes) {
  void* memory =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::fprintf(stderr, "linear: no memory for %ld MB\n", static_cast<long>(size_bytes >> 20));
    std::exit(2);
  }
  madvise(memory, size_bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(memory);
}

// A type of weights, as a spec without sizes.
struct WeightType {
  const char* name;
  LinearSpec form;
};

constexpr WeightType kTypes[] = {
    {"bfloat16", {.weight_dtype = DType::kBF16}},
    {"int8", {.weight_dtype = DType::kI8}},
    {"int4", {.weight_dtype = DType::kI4}},
    {"int4, groups of 32", {.weight_dtype = DType::kI4, .group_size = 32}},
    {"int4, offsets, blocks of 32",
     {.weight_dtype = DType::kI4, .group_size = 32, .blocks = {.size = 32}}},
    {"int4, offsets, blocks of 256",
     {.weight_dtype = DType::kI4, .group_size = 32, .blocks = {.size = 256}}},
    {"float32", {.weight_dtype = DType::kF32}},
};

LinearSpec WithSizes(LinearSpec form, const LinearSpec& sizes) {
  form.in_features = sizes.in_features;
  form.out_features = sizes.out_features;
  return form;
}

// All matrices of the chain, one behind the other in memory.
class Chain {
 public:
  Chain(Isa isa, const LinearSpec& form) : isa_(isa) {
    int64_t layer_bytes = 0;
    for (const LinearSpec& sizes : kLayer) layer_bytes += PaddedBytes(WithSizes(form, sizes));
    layers_ = (kChainBytes + layer_bytes - 1) / layer_bytes;
    size_bytes_ = layers_ * layer_bytes;
    memory_ = MapPages(size_bytes_);
    std::byte* place = memory_;
    for (int64_t layer = 0; layer < layers_; ++layer) {
      for (const LinearSpec& sizes : kLayer) {
        const LinearSpec spec = WithSizes(form, sizes);
        weights_.push_back({spec, place});
        place += PaddedBytes(spec);
      }
    }
    PackFirstLayer();
    for (int64_t layer = 1; layer < layers_; ++layer) {
      std::memcpy(memory_ + layer * layer_bytes, memory_, layer_bytes);
    }
  }
  ~Chain() { munmap(memory_, size_bytes_); }
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  const std::vector<PackedWeights>& weights() const { return weights_; }
  const std::byte* memory() const { return memory_; }
  int64_t size_bytes() const { return size_bytes_; }
  double packing_seconds() const { return packing_seconds_; }

 private:
  int64_t PaddedBytes(const LinearSpec& spec) const {
    return (cpu::PackedBytes(isa_, spec) + 4095) / 4096 * 4096;
  }

  void PackFirstLayer() {
    std::mt19937 random(1);
    std::vector<float> source(5632 * 2048);
    for (float& value : source) value = static_cast<float>(random() % 2001) * 1e-3f - 1.0f;
    const double start = Seconds();
    for (int64_t i = 0; i < 4; ++i) {
      const LinearSpec& spec = weights_[i].spec;
      for (int64_t row = 0; row < spec.out_features; row += 2048) {
        const int64_t rows = std::min<int64_t>(2048, spec.out_features - row);
        TensorView view(source.data(), DType::kF32, {rows, spec.in_features});
        std::vector<std::byte> int4;
        if (spec.weight_dtype == DType::kI4) {
          int4 = RandomInt4(rows, spec.in_features, spec.group_size, 1, spec.blocks);
          view = Int4Rows(int4, 0, rows, spec.in_features, spec.group_size, spec.blocks);
        }
        if (!cpu::PackRows(isa_, weights_[i], row, view).ok()) std::abort();
      }
    }
    packing_seconds_ = Seconds() - start;
  }

  const Isa isa_;
  int64_t layers_ = 0;
  int64_t size_bytes_ = 0;
  std::byte* memory_ = nullptr;
  std::vector<PackedWeights> weights_;
  double packing_seconds_ = 0.0;
};

double ReadSeconds(const Chain& chain, ThreadPool& pool) {
  return bench::ReadSeconds(chain.memory(), chain.size_bytes(), pool);
}

// Seconds of `matrices` linears, one after the other.
double RunSeconds(Isa isa, const Chain& chain, int64_t matrices, int64_t rows, ThreadPool& pool) {
  static const std::vector<float> in(512 * 5632, 0.5f);
  static std::vector<float> out(512 * 11264);
  static std::byte* const workspace = MapPages(64 << 20);
  const double start = Seconds();
  for (int64_t i = 0; i < matrices; ++i) {
    const PackedWeights& weights = chain.weights()[i];
    LinearArgs args;
    const bool f32 = weights.spec.weight_dtype == DType::kF32;
    const DType activation = f32 ? DType::kF32 : DType::kBF16;
    args.in =
        TensorView(const_cast<float*>(in.data()), activation, {rows, weights.spec.in_features});
    args.out = TensorView(out.data(), activation, {rows, weights.spec.out_features});
    args.weights = &weights;
    args.workspace = TensorView(workspace, DType::kI8, {64 << 20});
    cpu::RunLinear(isa, args, pool);
  }
  return Seconds() - start;
}

double Flops(const Chain& chain, int64_t matrices, int64_t rows) {
  double flops = 0.0;
  for (int64_t i = 0; i < matrices; ++i) {
    const LinearSpec& spec = chain.weights()[i].spec;
    flops += 2.0 * rows * spec.in_features * spec.out_features;
  }
  return flops;
}

struct Bars {
  double bandwidth_ratio_of_one_row = 0.0;
  double onednn_ratio_of_512_rows = 0.0;
};

// Low enough to hold while other programs share the cores; what is lower still is printed without
// one.
Bars BarsOf(Isa isa, DType dtype) {
  if (isa < Isa::kAvx512Bf16) return {};  // oneDNN multiplies pairs of bf16
  switch (dtype) {
    case DType::kF32: return {.bandwidth_ratio_of_one_row = 0.6, .onednn_ratio_of_512_rows = 0.6};
    case DType::kBF16: return {.bandwidth_ratio_of_one_row = 0.6, .onednn_ratio_of_512_rows = 0.7};
    case DType::kI8: return {.bandwidth_ratio_of_one_row = 0.0, .onednn_ratio_of_512_rows = 0.7};
    default: return {};
  }
}

bool Measure(Isa isa, const WeightType& type, int pairs, ThreadPool& pool) {
  const Chain chain(isa, type.form);
  DType dtype = type.form.weight_dtype;
  const auto matrices = static_cast<int64_t>(chain.weights().size());
  const Bars bars = BarsOf(isa, dtype);
  const double gigabytes = static_cast<double>(chain.size_bytes()) * 1e-9;
  bool met = true;
  std::printf("%s weights, %.2f GB in %ld matrices; packed at %.2f GB/s\n", type.name, gigabytes,
              static_cast<long>(matrices), gigabytes / (matrices / 4) / chain.packing_seconds());
  ReadSeconds(chain, pool);
  for (int64_t rows : {1, 4, 8, 16}) {
    std::vector<double> read, ours, ratio;
    for (int pair = 0; pair < pairs; ++pair) {
      read.push_back(ReadSeconds(chain, pool));
      ours.push_back(RunSeconds(isa, chain, matrices, rows, pool));
      ratio.push_back(read.back() / ours.back());
    }
    const double bar = rows == 1 ? bars.bandwidth_ratio_of_one_row : 0.0;
    met &= Median(ratio) >= bar;
    std::printf("  %3ld rows  %6.1f GB/s of %5.1f read: ratio %.2f (bar %.2f)\n",
                static_cast<long>(rows), gigabytes / Median(ours), gigabytes / Median(read),
                Median(ratio), bar);
  }
  const bool codes = dtype == DType::kI8 || dtype == DType::kI4;
  if (codes) dtype = DType::kBF16;  // what oneDNN would compute with
  const int64_t some = std::min<int64_t>(matrices, 12);
  bench::OneDnnLinears theirs(dtype, kLayer, some, pool.threads());
  for (int64_t rows : {16, 128, 512}) {
    theirs.SetRows(rows);
    std::vector<double> ours, other, ratio;
    for (int pair = 0; pair < pairs; ++pair) {
      ours.push_back(RunSeconds(isa, chain, some, rows, pool));
      const double start = Seconds();
      theirs.Run();
      other.push_back(Seconds() - start);
      ratio.push_back(other.back() / ours.back());
    }
    const double flops = Flops(chain, some, rows) * 1e-9;
    const double bar = rows == 512 ? bars.onednn_ratio_of_512_rows : 0.0;
    met &= Median(ratio) >= bar;
    std::printf("  %3ld rows  %6.0f GFLOP/s, oneDNN %s %s %5.0f: ratio %.2f (bar %.2f)\n",
                static_cast<long>(rows), flops / Median(ours), theirs.name().c_str(),
                std::string(Name(theirs.dtype())).c_str(), flops / Median(other), Median(ratio),
                bar);
  }
  return met;
}

ThreadPool::Options AllCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  ThreadPool::Options options;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) options.cores.push_back(core);
  }
  return options;
}

int Main(int argc, char** argv) {
  std::string isa_name = "auto";
  std::string only;  // types whose names begin so
  int pairs = 5;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.substr(0, 6) == "--isa=") {
      isa_name = argument.substr(6);
    } else if (argument.substr(0, 8) == "--pairs=") {
      pairs = std::max(1, std::atoi(argv[i] + 8));
    } else if (argument.substr(0, 7) == "--only=") {
      only = argument.substr(7);
    } else {
      std::fprintf(stderr,
                   "usage: linear [--isa=avx2|avx512|avx512_bf16|amx] [--pairs=N] [--only=TYPE]\n");
      return 2;
    }
  }
  const absl::StatusOr<Isa> isa = ParseIsa(isa_name);
  if (!isa.ok() || *isa == Isa::kReference) {
    std::fprintf(stderr, "linear: %s\n", isa.status().ToString().c_str());
    return 2;
  }
  const auto pool = ThreadPool::Create(AllCores()).value();
  std::printf("path %s, %d threads\n", std::string(Name(*isa)).c_str(), pool->threads());
  bool met = true;
  for (const WeightType& type : kTypes) {
    if (only.empty() || std::string_view(type.name).substr(0, only.size()) == only) {
      met &= Measure(*isa, type, pairs, *pool);
    }
  }
  std::printf(met ? "all bars met\n" : "A BAR WAS MISSED\n");
  return met ? 0 : 1;
}

}  // namespace
}  // namespace tessera::kernels

int main(int argc, char** argv) { return tessera::kernels::Main(argc, argv); }
