// Dense linears by cuBLASLt, which a fake stands for, on the emulated GPU.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/emulation/runtime.h"
#include "kernels/graph_stream.h"
#include "kernels/tuning_table.h"
#include "tests/kernels/conformance/path.h"
#include "tests/kernels/cuda/driver/fake_blas.h"
#include "tests/logged_lines.h"
#include "tests/temporary_folder.h"

namespace tessera::kernels::cuda {
namespace {

using conformance::Difference;
using conformance::Path;
using conformance::Random;
using conformance::Reference;
using conformance::Tensor;
using conformance::Zeros;
using emulated::LaunchesFrom;
using tests::FakeBlas;

std::unique_ptr<Path> PathWith(FakeBlas* fake) {
  const BlasTable table = tests::TableOf(fake);
  auto device = emulated::CreateCudaDevice({.memory_bytes = int64_t{64} << 20, .blas = &table});
  REQUIRE(device.status().message() == "");
  return std::make_unique<Path>(*std::move(device), &emulated::CheckMemoryGuards);
}

// A linear of a path: its memory and workspace for up to kMaxRows rows.
struct Layer {
  static constexpr int64_t kMaxRows = 100;

  Layer(Path& path, DType weight, DType activation, int64_t padding = 0, int64_t in_features = 72)
      : path(path),
        activation(activation),
        padding(padding),
        spec({.in_features = in_features, .out_features = 40, .weight_dtype = weight}) {
    auto allocated = path.device().Allocate(path.ops().PackedWeightBytes(spec));
    REQUIRE(allocated.ok());
    memory = *std::move(allocated);
    weights = {.spec = spec, .data = memory.data()};
    const Tensor rows = Random(Reference(), DType::kF32, {40, in_features}, 1);
    REQUIRE(path.ops().PackWeightRows(weights, 0, rows).ok());
    workspace = path.Workspace(path.ops().LinearWorkspaceBytes(spec, kMaxRows, activation) + 64);
    workspace.data += 64;  // as an arena may place it
    workspace.shape[0] -= 64;
  }
  absl::Status Enqueue(int64_t rows, bool biased, const Tensor& out) const {
    const Tensor in = Random(path, activation, {rows, spec.in_features}, 2, padding);
    const Tensor bias = Random(path, DType::kF32, {40}, 3);
    LinearArgs args = {.out = out, .in = in, .weights = &weights};
    args.workspace = workspace;
    args.products = SizeInBytes(spec.weight_dtype) == 2 ? spec.weight_dtype : DType::kBF16;
    if (biased) args.bias = bias;
    const absl::Status status = path.ops().Linear(args, path.stream());
    return status.ok() ? path.stream().Synchronize() : status;
  }
  std::vector<float> Run(int64_t rows, bool biased) const {
    const Tensor out = Zeros(path, activation, {rows, 40}, 5);
    REQUIRE(Enqueue(rows, biased, out).message() == "");
    CHECK(out.PaddingIntact());
    return out.Read();
  }

  Path& path;
  const DType activation;
  const int64_t padding;
  const LinearSpec spec;
  Buffer memory;
  PackedWeights weights;
  TensorView workspace;
};

TEST_CASE("from 5 rows on cuBLASLt computes dense linears of 16-bit weights") {
  FakeBlas fake;
  {
    const auto path = PathWith(&fake);
    const DType weight = GENERATE(DType::kBF16, DType::kF16);
    const bool half = GENERATE(false, true), biased = GENERATE(false, true);
    const int64_t padding = GENERATE(0, 3), rows = GENERATE(5, 16, 17, 100);
    CAPTURE(Name(weight), half, biased, padding, rows);
    const DType activation = half ? weight : DType::kF32;
    const Layer fast(*path, weight, activation, padding), oracle(Reference(), weight, activation);
    const int64_t own = LaunchesFrom("gemm.cu");
    const std::vector<float> expected = oracle.Run(rows, biased);
    CHECK(Difference(fast.Run(rows, biased), expected, 1e-2) == "");
    // A bias is float32, and the library wants it in the output's type.
    const bool can = !(half && biased);
    CHECK(fake.products == (can ? 1 : 0));
    CHECK(LaunchesFrom("gemm.cu") == own + (can ? 0 : 1));
  }
  CHECK(fake.alive == 0);
}

TEST_CASE(
    "matrices may begin where arenas and rows place them; our GEMM takes what no vector can") {
  FakeBlas fake;
  const auto path = PathWith(&fake);
  const Layer layer(*path, DType::kBF16, DType::kBF16),
      oracle(Reference(), DType::kBF16, DType::kBF16);
  const std::vector<float> expected = oracle.Run(32, false);
  const Tensor in = Random(*path, DType::kBF16, {32, 72}, 2);
  for (const int64_t before : {8, 16, 32, 1}) {
    CAPTURE(before);
    const int64_t own_gemm = LaunchesFrom("gemm.cu");
    fake.products = 0;
    // Columns [before, before + 40) of wider rows.
    const Tensor wide = Zeros(*path, DType::kBF16, {32, 96});
    TensorView out = wide;
    out.data += before * SizeInBytes(DType::kBF16);
    out.shape[1] = 40;
    LinearArgs args = {.out = out, .in = in, .weights = &layer.weights};
    args.workspace = layer.workspace;
    args.products = DType::kBF16;
    REQUIRE(path->ops().Linear(args, path->stream()).message() == "");
    path->Synchronize();
    CHECK(fake.products == (before == 1 ? 0 : 1));
    CHECK(LaunchesFrom("gemm.cu") == own_gemm + (before == 1 ? 1 : 0));
    const std::vector<float> all = wide.Read();
    std::vector<float> own;
    for (int64_t row = 0; row < 32; ++row) {
      const auto first = all.begin() + row * 96 + before;
      own.insert(own.end(), first, first + 40);
    }
    CHECK(Difference(own, expected, 1e-2) == "");
  }
}

TEST_CASE("its plans are made with the workspace, and none in a step") {
  FakeBlas fake;
  const auto path = PathWith(&fake);
  const Layer layer(*path, DType::kBF16, DType::kF32);
  // For 8, 16, 32, 64 and 128 rows, with and without a bias.
  CHECK(fake.suggestions == 10);
  const Layer again(*path, DType::kBF16, DType::kF32);
  for (const int64_t rows : {4, 5, 16, 40, 64, 100}) again.Run(rows, rows == 40);
  CHECK(fake.suggestions == 10);
  CHECK(fake.products == 5);
}

TEST_CASE("what cuBLASLt cannot do, or has no algorithm for, our GEMM does") {
  FakeBlas fake;
  fake.suggests = GENERATE(true, false);
  const auto path = PathWith(&fake);
  const int64_t own = LaunchesFrom("gemm.cu");
  const Layer half(*path, DType::kBF16, DType::kF32), codes(*path, DType::kI8, DType::kF32);
  const Layer oracle(Reference(), DType::kBF16, DType::kF32);
  CHECK(Difference(half.Run(32, true), oracle.Run(32, true), 1e-2) == "");
  LinearArgs args = {.out = {}, .in = {}, .weights = &codes.weights};
  const Tensor in = Random(*path, DType::kF32, {32, 72}, 2);
  const Tensor out = Zeros(*path, DType::kF32, {32, 40});
  args.out = out;
  args.in = in;
  args.workspace = codes.workspace;
  args.products = DType::kBF16;
  REQUIRE(path->ops().Linear(args, path->stream()).ok());
  path->Synchronize();
  CHECK(fake.products == (fake.suggests ? 1 : 0));
  CHECK(LaunchesFrom("gemm.cu") == own + (fake.suggests ? 1 : 2));
}

TEST_CASE("codes that meet many rows become 16-bit weights for cuBLASLt, some columns at a time") {
  FakeBlas fake;
  const BlasTable table = tests::TableOf(&fake);
  // Tiles of columns, one at a time.
  auto device = emulated::CreateCudaDevice(
      {.memory_bytes = int64_t{64} << 20, .blas = &table, .widened_bytes = 1});
  REQUIRE(device.ok());
  Path path(*std::move(device), &emulated::CheckMemoryGuards);
  const DType products = GENERATE(DType::kBF16, DType::kF16);
  const bool biased = GENERATE(false, true);
  CAPTURE(Name(products), biased);
  constexpr int64_t kIn = 40, kOut = 300, kMaxRows = 280;
  const LinearSpec spec = {
      .in_features = kIn, .out_features = kOut, .weight_dtype = DType::kI8, .group_size = 32};
  const auto run = [&](Path& on, int64_t rows) {
    auto memory = on.device().Allocate(on.ops().PackedWeightBytes(spec));
    REQUIRE(memory.ok());
    const PackedWeights weights = {.spec = spec, .data = memory->data()};
    const Tensor source = Random(Reference(), DType::kF32, {kOut, kIn}, 1);
    REQUIRE(on.ops().PackWeightRows(weights, 0, source).ok());
    const Tensor in = Random(on, DType::kF32, {rows, kIn}, 2, 3);
    const Tensor out = Zeros(on, DType::kF32, {rows, kOut}, 5);
    const Tensor bias = Random(on, DType::kF32, {kOut}, 3);
    LinearArgs args = {.out = out, .in = in, .weights = &weights};
    args.workspace = on.Workspace(on.ops().LinearWorkspaceBytes(spec, kMaxRows, DType::kF32));
    args.products = products;
    if (biased) args.bias = bias;
    REQUIRE(on.ops().Linear(args, on.stream()).message() == "");
    on.Synchronize();
    CHECK(out.PaddingIntact());
    return out.Read();
  };
  const int64_t gemm = LaunchesFrom("gemm.cu"), widened = LaunchesFrom("widen.cu");
  CHECK(Difference(run(path, 255), run(Reference(), 255), 1e-2) == "");
  CHECK(fake.products == 0);
  CHECK(LaunchesFrom("gemm.cu") == gemm + 1);
  const std::vector<float> expected = run(Reference(), 270);
  const int64_t suggestions = fake.suggestions;
  CHECK(Difference(run(path, 270), expected, 1e-2) == "");
  CHECK(fake.products == 3);
  CHECK(LaunchesFrom("widen.cu") == widened + 3);
  CHECK(LaunchesFrom("gemm.cu") == gemm + 1);
  CHECK(fake.suggestions == suggestions);  // plans are there already
  fake.multiply_error = 7;
  CHECK(Difference(run(path, 270), expected, 1e-2) == "");
  CHECK(LaunchesFrom("gemm.cu") == gemm + 4);
}

TEST_CASE("a library that refuses is named, and the device does without it") {
  FakeBlas fake;
  fake.create_error = 1;
  const auto path = PathWith(&fake);
  CHECK_THAT(path->device().Describe(),
             Catch::Contains("our GEMM (cublasLtCreate: cuBLAS status 1)"));
  const Layer layer(*path, DType::kBF16, DType::kF32);
  const Layer oracle(Reference(), DType::kBF16, DType::kF32);
  CHECK(Difference(layer.Run(32, false), oracle.Run(32, false), 1e-2) == "");
  CHECK(fake.products == 0);
  fake.create_error = 0;
  CHECK_THAT(PathWith(&fake)->device().Describe(), Catch::Contains("GEMV and cuBLASLt"));
}

TEST_CASE(
    "what cuBLASLt refuses when it is asked our GEMM does, and the library is not asked again") {
  FakeBlas fake;
  const auto path = PathWith(&fake);
  const DType activation = GENERATE(DType::kF32, DType::kBF16);
  const int64_t padding = GENERATE(0, 3);
  CAPTURE(Name(activation), padding);
  const Layer layer(*path, DType::kBF16, activation, padding);
  const Layer oracle(Reference(), DType::kBF16, activation);
  const tests::LoggedLines log("kernels");
  const auto check = [&](int64_t rows) {
    CAPTURE(rows);
    CHECK(Difference(layer.Run(rows, false), oracle.Run(rows, false), 1e-2) == "");
  };
  fake.multiply_error = GENERATE(7, 13, 15);
  const int64_t own = LaunchesFrom("gemm.cu");
  check(32);
  CHECK(fake.products == 1);
  CHECK(LaunchesFrom("gemm.cu") == own + 1);
  check(32);
  CHECK(fake.products == 1);
  check(100);  // of another plan; and more than split their depth
  check(20);   // of the first one: the library may take it
  CHECK(fake.products == 3);
  CHECK(LaunchesFrom("gemm.cu") == own + 4);
  CHECK(log.Count("cuBLASLt refuses 32 rows") == 1);
  CHECK(log.Count("cuBLASLt refuses") == 2);
  CHECK(path->device().Lost().ok());

  fake.multiply_error = 0;
  check(24);
  CHECK(fake.products == 4);
  check(32);
  CHECK(fake.products == 4);
  CHECK(LaunchesFrom("gemm.cu") == own + 5);
}

TEST_CASE("a step that cuBLASLt refuses in part becomes a graph all the same") {
  FakeBlas fake;
  const auto path = PathWith(&fake);
  const Layer layer(*path, DType::kBF16, DType::kF32),
      oracle(Reference(), DType::kBF16, DType::kF32);
  const Tensor in = Random(*path, DType::kF32, {32, 72}, 2);
  const Tensor out = Zeros(*path, DType::kF32, {32, 40});
  LinearArgs args = {.out = out, .in = in, .weights = &layer.weights};
  args.workspace = layer.workspace;
  args.products = DType::kBF16;
  auto& stream = *path->stream().repeating();
  const GraphStream::Key key = {1};
  int steps = 0;
  for (; !stream.Replay(key); ++steps) {
    REQUIRE(steps < 3);
    stream.BeginRecording(key);
    REQUIRE(path->ops().Linear(args, path->stream()).ok());
    stream.EndRecording(true);
    path->Synchronize();
    fake.multiply_error = 15;  // from the step on that is recorded
  }
  path->Synchronize();
  CHECK(steps == 2);
  CHECK(stream.kept().count == 1);
  CHECK(fake.products == 2);
  CHECK(Difference(out.Read(), oracle.Run(32, false), 1e-2) == "");
}

// Measured on a clock that launches move, and kept in `table`.
std::unique_ptr<Path> TunedPath(FakeBlas* fake, std::shared_ptr<TuningTable> table) {
  static BlasTable blas;
  blas = tests::TableOf(fake);
  auto device = emulated::CreateCudaDevice(
      {.memory_bytes = int64_t{64} << 20, .blas = &blas, .tuning = std::move(table)});
  REQUIRE(device.status().message() == "");
  return std::make_unique<Path>(*std::move(device), &emulated::CheckMemoryGuards);
}

// Our GEMM's time grows with the shared memory of its blocks: fewer stages are faster.
double SharedSeconds(std::string_view, const LaunchShape& shape) {
  return 1e-8 * static_cast<double>(shape.shared_bytes);
}

TEST_CASE("of cuBLASLt's suggestions the fastest is taken, and at the next start not measured") {
  emulated::Inject({.launch_seconds = &SharedSeconds});
  FakeBlas fake;
  fake.most_suggestions = 5;
  int taken = -1;
  fake.on_product = [&](int suggestion) {
    taken = suggestion;
    emulated::AdvanceClock(suggestion == 3 ? 1e-3 : 2e-3);
  };
  const tests::TemporaryFolder folder;
  const std::string file = (folder.path() / "GPU-1").string();
  int64_t measured = 0;
  for (const bool first : {true, false}) {
    CAPTURE(first);
    fake.products = 0;
    const auto path = TunedPath(&fake, std::make_shared<TuningTable>(file, "a build"));
    const Layer layer(*path, DType::kBF16, DType::kF32),
        oracle(Reference(), DType::kBF16, DType::kF32);
    if (first) measured = fake.products;
    CHECK((fake.products > 0) == first);
    CHECK(Difference(layer.Run(32, false), oracle.Run(32, false), 1e-2) == "");
    CHECK(taken == 3);
    CHECK_THAT(path->device().Describe(),
               Catch::Contains(first ? "; tuned: 10 choices, 10 of them measured at this start"
                                     : "; tuned: 10 choices"));
  }
  CHECK(measured >= 10 * 5);  // each plan measures each suggestion
  CHECK(fake.alive == 0);
  emulated::Inject({});
}

TEST_CASE("of the ways of our GEMM the fastest is taken, and its bits are those of the usual one") {
  emulated::Inject({.launch_seconds = &SharedSeconds});
  FakeBlas fake;
  const auto usual = PathWith(&fake);
  const auto tuned = TunedPath(&fake, std::make_shared<TuningTable>("", "a build"));
  const Layer plain(*usual, DType::kI8, DType::kF32, 0, 640);
  const int64_t before = LaunchesFrom("gemm.cu");
  const Layer fast(*tuned, DType::kI8, DType::kF32, 0, 640);
  CHECK(LaunchesFrom("gemm.cu") > before + 5 * 3);
  CHECK_THAT(tuned->device().Describe(), Catch::Contains("; tuned: 5 choices"));
  for (const int64_t rows : {5, 16, 40, 100}) {
    CAPTURE(rows);
    CHECK(fast.Run(rows, false) == plain.Run(rows, false));
  }
  emulated::Inject({});
}

TEST_CASE("a GPU without room to measure takes the usual ways") {
  FakeBlas fake;
  fake.most_suggestions = 5;
  const auto table = std::make_shared<TuningTable>("", "a build");
  const auto path = TunedPath(&fake, table);
  emulated::Inject({.memory_bytes = 1 << 20});
  const Layer layer(*path, DType::kBF16, DType::kF32);
  emulated::Inject({});
  CHECK_THAT(table->Describe(), Catch::StartsWith("tuned: 0 choices"));
  layer.Run(32, false);
}

}  // namespace
}  // namespace tessera::kernels::cuda
