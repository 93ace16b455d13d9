// How fast each op runs on each path of this machine, by the conformance suite's harness: result
// checked against the reference first, then timed.
//
//   tests/bench/run ops
//
// Prints bytes moved (linears: of weights; attention: of keys and values) as a share of the
// measured read bandwidth, and the speed over the reference's. What stays in caches may pass 1.
// Bar: no fast path is slower than the plain loops.

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/probe.h"
#include "tests/bench/op_subject.h"
#include "tests/kernels/random_int4.h"

namespace tessera::kernels::conformance {
namespace {

constexpr int64_t kRows = 512;
constexpr int64_t kWidth = 4096;

double BestSeconds(Path& path, const Subject& subject) {
  double best = 1e9;
  double spent = 0;
  for (int run = 0; run < 50 && (run < 4 || spent < 0.4); ++run) {
    const auto start = std::chrono::steady_clock::now();
    REQUIRE(subject.run().ok());
    path.Synchronize();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (run > 0) best = std::min(best, seconds.count());
    spent += seconds.count();
  }
  return best;
}

Maker Norm(DType type, bool layer) {
  return [type, layer](Path& path) {
    auto in = std::make_shared<Tensor>(Random(path, type, {kRows, kWidth}, 1));
    auto weight = std::make_shared<Tensor>(Random(path, DType::kF32, {kWidth}, 2));
    auto bias = std::make_shared<Tensor>(Random(path, DType::kF32, {kWidth}, 3));
    auto out = std::make_shared<Tensor>(Zeros(path, type, {kRows, kWidth}));
    Subject subject;
    subject.run = [=, &path] {
      NormArgs args = {.out = *out, .in = *in, .weight = *weight};
      if (layer) args.bias = *bias;
      return layer ? path.ops().LayerNorm(args, path.stream())
                   : path.ops().RmsNorm(args, path.stream());
    };
    subject.out = [out] { return out->Read(); };
    subject.bytes = 2.0 * kRows * kWidth * SizeInBytes(type);
    return subject;
  };
}

Maker Gated(DType type, Activation kind) {
  return [type, kind](Path& path) {
    auto in = std::make_shared<Tensor>(Random(path, type, {kRows, 2 * kWidth}, 1));
    auto out = std::make_shared<Tensor>(Zeros(path, type, {kRows, kWidth}));
    Subject subject;
    subject.run = [=, &path] {
      return path.ops().GatedActivate({.out = *out, .gate_up = *in, .kind = kind}, path.stream());
    };
    subject.out = [out] { return out->Read(); };
    subject.bytes = 3.0 * kRows * kWidth * SizeInBytes(type);
    return subject;
  };
}

Maker GatherOf(DType type) {
  return [type](Path& path) {
    auto in = std::make_shared<Tensor>(Random(path, type, {kRows, kWidth}, 1));
    auto rows = std::make_shared<Tensor>(path, std::vector<int64_t>{kRows},
                                         RandomInts(kRows, static_cast<int32_t>(kRows), 2));
    auto out = std::make_shared<Tensor>(Zeros(path, type, {kRows, kWidth}));
    Subject subject;
    subject.run = [=, &path] {
      return path.ops().GatherRows({.out = *out, .in = *in, .rows = *rows}, path.stream());
    };
    subject.out = [out] { return out->Read(); };
    subject.bytes = 2.0 * kRows * kWidth * SizeInBytes(type);
    return subject;
  };
}

Maker LogSoftmaxOf() {
  return [](Path& path) {
    auto in = std::make_shared<Tensor>(Random(path, DType::kF32, {64, 32000}, 1));
    auto out = std::make_shared<Tensor>(Zeros(path, DType::kF32, {64, 32000}));
    Subject subject;
    subject.run = [=, &path] {
      return path.ops().LogSoftmax({.out = *out, .in = *in}, path.stream());
    };
    subject.out = [out] { return out->Read(); };
    subject.bytes = 2.0 * 64 * 32000 * 4;
    return subject;
  };
}

Maker TopKOf() {
  return [](Path& path) {
    auto in = std::make_shared<Tensor>(Random(path, DType::kF32, {64, 32000}, 1));
    auto values = std::make_shared<Tensor>(Zeros(path, DType::kF32, {64, 20}));
    auto indices =
        std::make_shared<Tensor>(path, std::vector<int64_t>{64, 20}, std::vector<int32_t>(64 * 20));
    Subject subject;
    subject.run = [=, &path] {
      return path.ops().TopK({.values = *values, .indices = *indices, .in = *in}, path.stream());
    };
    subject.out = [values] { return values->Read(); };
    subject.bytes = 64.0 * 32000 * 4;
    return subject;
  };
}

Maker LinearOf(DType weight, DType activation, int64_t rows) {
  return [=](Path& path) {
    const LinearSpec spec = {
        .in_features = 1024, .out_features = 1024, .weight_dtype = weight, .group_size = 128};
    struct State {
      Buffer memory;
      PackedWeights weights;
    };
    auto state = std::make_shared<State>();
    state->memory = path.device().Allocate(path.ops().PackedWeightBytes(spec)).value();
    state->weights = {.spec = spec, .data = state->memory.data()};
    const Tensor source = Random(path, DType::kF32, {1024, 1024}, 1);
    const auto int4 = RandomInt4(1024, 1024, 128, 1);
    const TensorView packed_rows =
        weight == DType::kI4 ? Int4Rows(int4, 0, 1024, 1024, 128) : source.view();
    REQUIRE(path.ops().PackWeightRows(state->weights, 0, packed_rows).ok());
    auto in = std::make_shared<Tensor>(Random(path, activation, {rows, 1024}, 2));
    auto out = std::make_shared<Tensor>(Zeros(path, activation, {rows, 1024}));
    const TensorView workspace =
        path.Workspace(path.ops().LinearWorkspaceBytes(spec, rows, activation));
    Subject subject;
    subject.run = [=, &path] {
      const LinearArgs args = {
          .out = *out, .in = *in, .weights = &state->weights, .workspace = workspace};
      return path.ops().Linear(args, path.stream());
    };
    subject.out = [out] { return out->Read(); };
    subject.bytes = static_cast<double>(path.ops().PackedWeightBytes(spec));
    return subject;
  };
}

TEST_CASE("the speed of ops") {
  std::vector<NamedMaker> ops = {
      {"rms_norm f32", Norm(DType::kF32, false)},
      {"rms_norm bf16", Norm(DType::kBF16, false)},
      {"layer_norm bf16", Norm(DType::kBF16, true)},
      {"silu_gated f32", Gated(DType::kF32, Activation::kSilu)},
      {"silu_gated bf16", Gated(DType::kBF16, Activation::kSilu)},
      {"gelu_gated bf16", Gated(DType::kBF16, Activation::kGeluTanh)},
      {"gather bf16", GatherOf(DType::kBF16)},
      {"log_softmax f32", LogSoftmaxOf()},
      {"top_20 f32", TopKOf()},
      {"linear f32, 1 row", LinearOf(DType::kF32, DType::kF32, 1)},
      {"linear bf16, 1 row", LinearOf(DType::kBF16, DType::kBF16, 1)},
      {"linear int8, 1 row", LinearOf(DType::kI8, DType::kBF16, 1)},
      {"linear int4, 1 row", LinearOf(DType::kI4, DType::kBF16, 1)},
      {"linear bf16, 64 rows", LinearOf(DType::kBF16, DType::kBF16, 64)},
      {"linear int8, 64 rows", LinearOf(DType::kI8, DType::kBF16, 64)},
      {"linear int4, 64 rows", LinearOf(DType::kI4, DType::kBF16, 64)},
  };
  for (NamedMaker& op : OpsOfStep()) ops.push_back(std::move(op));
  const double bandwidth =
      ProbeDevice(OtherPaths().empty() ? Reference().device() : OtherPaths().back()->device())
          .value()
          .read_bytes_per_second;
  std::printf("read bandwidth %.1f GB/s\n%-24s %-10s %10s %12s\n", bandwidth / 1e9, "op", "path",
              "bandwidth", "reference");
  for (const auto& [name, make] : ops) {
    const Subject plain = make(Reference());
    const double plain_seconds = BestSeconds(Reference(), plain);
    const std::vector<float> expected = plain.out();
    for (const auto& path : OtherPaths()) {
      const Subject fast = make(*path);
      const double seconds = BestSeconds(*path, fast);
      CHECK(Difference(fast.out(), expected, 1e-2) == "");
      std::printf("%-24s %-10s %9.2fx %11.1fx\n", name.c_str(), path->name().c_str(),
                  fast.bytes / seconds / bandwidth, plain_seconds / seconds);
      CHECK(plain_seconds / seconds >= 1.0);
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::conformance
