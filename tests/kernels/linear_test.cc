// Linear: every path against a plain double loop over the weights it says it computes with, and the
// promise that a row's bits do not depend on the rows beside it.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <utility>

#include "tests/kernels/linear_paths.h"
#include "tests/kernels/random_int4.h"

namespace tessera::kernels {
namespace {

struct Case {
  LinearSpec spec;
  int64_t rows = 1;
  DType activation = DType::kF32;
  bool bias = false;
  int64_t extra_stride = 0;
  DType products = DType::kF32;
};

std::string Describe(const LinearPath& path, const Case& c) {
  return path.name + " in=" + std::to_string(c.spec.in_features) +
         " out=" + std::to_string(c.spec.out_features) +
         " weights=" + std::string(Name(c.spec.weight_dtype)) +
         " group=" + std::to_string(c.spec.group_size) + " rows=" + std::to_string(c.rows) +
         " activations=" + std::string(Name(c.activation)) +
         " products=" + std::string(Name(c.products)) + " stride+" + std::to_string(c.extra_stride);
}

// Largest error relative to the largest expected result; -1 where a place that is not `out`'s was
// written.
float RelativeError(const LinearPath& path, const Case& c, ThreadPool& pool) {
  std::mt19937 random(1234);
  const TestWeights weights(path, c.spec, random);
  Matrix in(c.activation, c.rows, c.spec.in_features, c.spec.in_features + c.extra_stride);
  Matrix out(c.activation, c.rows, c.spec.out_features, c.spec.out_features + c.extra_stride);
  Matrix bias(DType::kF32, 1, c.spec.out_features);
  in.FillNormal(random);
  bias.FillNormal(random, 10.0f);
  Memory workspace(path.workspace_bytes(c.spec, c.rows));
  LinearArgs args;
  args.out = out.view;
  args.in = in.view;
  args.weights = &weights.packed;
  if (c.bias) args.bias = TensorView(bias.memory.data(), DType::kF32, {c.spec.out_features});
  args.workspace = TensorView(workspace.data(), DType::kI8, {path.workspace_bytes(c.spec, c.rows)});
  args.products = c.products;
  path.run(args, pool);

  double largest = 0.0, error = 0.0;
  for (int64_t row = 0; row < c.rows; ++row) {
    for (int64_t column = 0; column < c.spec.out_features; ++column) {
      double expected = c.bias ? bias.Get(0, column) : 0.0;
      for (int64_t i = 0; i < c.spec.in_features; ++i) {
        expected += static_cast<double>(in.Get(row, i)) * weights.values.Get(column, i);
      }
      const double difference = std::abs(out.Get(row, column) - expected);
      error = std::isnan(difference) ? INFINITY : std::max(error, difference);
      largest = std::max(largest, std::abs(expected));
    }
    for (int64_t i = c.spec.out_features; i < out.view.row_stride && row + 1 < c.rows; ++i) {
      if (!std::isnan(out.Get(row, i))) return -1.0f;
    }
  }
  return static_cast<float>(error / largest);
}

void Check(const Case& c) {
  for (const LinearPath& path : LinearPaths()) {
    INFO(Describe(path, c));
    const float error = RelativeError(path, c, TestPool());
    CHECK(error >= 0.0f);
    CHECK(error <= LinearTolerance(c.activation, c.products));
  }
}

constexpr DType kWeightTypes[] = {DType::kF32, DType::kBF16, DType::kI8, DType::kF8, DType::kI4};
constexpr DType kActivationTypes[] = {DType::kF32, DType::kBF16};
constexpr std::pair<DType, DType> kActivationsAndProducts[] = {
    {DType::kF32, DType::kF32}, {DType::kF32, DType::kBF16}, {DType::kBF16, DType::kF32}};

// Up to more than a block of 12 rows holds, and around the edges of tiles of 16.
TEST_CASE("linear: every count of rows") {
  for (DType weight : kWeightTypes) {
    for (DType activation : kActivationTypes) {
      for (int64_t rows :
           {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 17, 25, 31, 32, 33, 49}) {
        for (DType products : {DType::kF32, DType::kBF16}) {
          Check({.spec = {.in_features = 290, .out_features = 40, .weight_dtype = weight},
                 .rows = rows,
                 .activation = activation,
                 .products = products});
        }
      }
    }
  }
}

TEST_CASE("linear: odd sizes, strides and bias") {
  constexpr int64_t kSizes[][2] = {{1, 1},    {1, 33},   {2, 31},   {3, 64},
                                   {31, 5},   {127, 32}, {128, 96}, {129, 40},
                                   {255, 17}, {257, 65}, {513, 1},  {640, 100}};
  for (const auto& size : kSizes) {
    for (DType weight : kWeightTypes) {
      for (DType activation : kActivationTypes) {
        for (int64_t rows : {1, 5, 19}) {
          Check({.spec = {.in_features = size[0], .out_features = size[1], .weight_dtype = weight},
                 .rows = rows,
                 .activation = activation,
                 .bias = true,
                 .extra_stride = 3});
        }
      }
    }
  }
}

TEST_CASE("linear: float8, int8 and int4 groups of any size") {
  for (int64_t group : {1, 2, 7, 16, 32, 50, 63, 64, 100, 127, 128}) {
    for (int64_t rows : {1, 9, 35}) {
      for (DType activation : kActivationTypes) {
        for (DType weight : {DType::kF8, DType::kI8, DType::kI4}) {
          Check({.spec = {.in_features = 331,
                          .out_features = 45,
                          .weight_dtype = weight,
                          .group_size = group},
                 .rows = rows,
                 .activation = activation});
        }
      }
    }
  }
}

TEST_CASE("linear: int4 with offsets, in blocks of a group and of several") {
  const auto check = [](const Int4Form& form, int64_t rows, DType activation, DType products) {
    Check({.spec = {.in_features = 1131,
                    .out_features = 45,
                    .weight_dtype = DType::kI4,
                    .group_size = form.group_size,
                    .blocks = form.blocks},
           .rows = rows,
           .activation = activation,
           .products = products});
  };
  for (int64_t rows : {1, 2, 3, 9, 17, 35, 600}) {
    for (const Int4Form& form : kInt4Offsets) {
      for (const auto& [activation, products] : kActivationsAndProducts) {
        check(form, rows, activation, products);
      }
    }
  }
  for (const Int4Form& form : {Int4Form{16, {256, 16}}, {7, {7, 0}}, {128, {256, 128}}}) {
    check(form, 3, DType::kF32, DType::kF32);
  }
}

TEST_CASE("linear: more rows than one chunk holds") {
  for (DType weight : kWeightTypes) {
    Check({.spec = {.in_features = 34, .out_features = 33, .weight_dtype = weight}, .rows = 1100});
  }
}

TEST_CASE("linear: no rows, nothing written") {
  std::mt19937 random(5);
  for (const LinearPath& path : LinearPaths()) {
    const TestWeights weights(path, {.in_features = 8, .out_features = 8}, random);
    Matrix in(DType::kF32, 1, 8), out(DType::kF32, 1, 8);
    LinearArgs args;
    args.out = out.view.Rows(0);
    args.in = in.view.Rows(0);
    args.weights = &weights.packed;
    path.run(args, TestPool());
    CHECK(path.workspace_bytes(weights.packed.spec, 0) == 0);
    CHECK(std::isnan(out.Get(0, 0)));
  }
}

void RunRows(const LinearPath& path, const TestWeights& weights, const Matrix& in,
             const Matrix& out, int64_t begin, int64_t end, ThreadPool& pool,
             DType products = DType::kF32) {
  const auto slice = [begin, end](const TensorView& view) {
    TensorView rows = view.Rows(end - begin);
    rows.data += begin * view.row_stride * SizeInBytes(view.dtype);
    return rows;
  };
  const Memory workspace(path.workspace_bytes(weights.packed.spec, end - begin));
  LinearArgs args;
  args.out = slice(out.view);
  args.in = slice(in.view);
  args.weights = &weights.packed;
  args.workspace = TensorView(workspace.data(), DType::kI8, {1});
  args.products = products;
  path.run(args, pool);
}

// Computes kRows rows together, and again in parts of random sizes.
void CheckSameBits(const LinearPath& path, const LinearSpec& spec, DType activation, DType products,
                   std::mt19937& random) {
  constexpr int64_t kRows = 75;
  const TestWeights weights(path, spec, random);
  Matrix in(activation, kRows, spec.in_features), together(activation, kRows, spec.out_features);
  in.FillNormal(random);
  RunRows(path, weights, in, together, 0, kRows, TestPool(), products);
  for (int trial = 0; trial < 6; ++trial) {
    Matrix split(activation, kRows, spec.out_features);
    for (int64_t begin = 0; begin < kRows;) {
      const int64_t most = trial == 0 ? 1 : kRows - begin;
      const int64_t end = begin + 1 + static_cast<int64_t>(random() % most);
      RunRows(path, weights, in, split, begin, end, trial % 2 == 0 ? OneThread() : TestPool(),
              products);
      begin = end;
    }
    INFO(path.name << " weights " << Name(spec.weight_dtype) << " blocks " << spec.blocks.size
                   << " activations " << Name(activation) << " products " << Name(products));
    CHECK(std::memcmp(together.memory.data(), split.memory.data(),
                      kRows * spec.out_features * SizeInBytes(activation)) == 0);
  }
}

TEST_CASE("linear: a row has the same bits whatever rows and threads it is computed with") {
  // So many outputs that some calls compute several panels at once.
  const LinearSpec shape = {.in_features = 1061, .out_features = 563};
  std::vector<LinearSpec> specs;
  for (DType weight : kWeightTypes) {
    specs.push_back(shape);
    specs.back().weight_dtype = weight;
  }
  for (const Int4Form& form : kInt4Offsets) {
    specs.push_back(specs.back());
    specs.back().group_size = form.group_size;
    specs.back().blocks = form.blocks;
  }
  std::mt19937 random(99);
  for (const LinearPath& path : LinearPaths()) {
    for (const LinearSpec& spec : specs) {
      for (const auto& [activation, products] : kActivationsAndProducts) {
        CheckSameBits(path, spec, activation, products, random);
      }
    }
  }
}

TEST_CASE("linear: numbers that are not finite stay in their row and column") {
  std::mt19937 random(7);
  for (const LinearPath& path : LinearPaths()) {
    const LinearSpec spec = {.in_features = 40, .out_features = 40, .weight_dtype = DType::kBF16};
    const TestWeights weights(path, spec, random);
    Matrix in(DType::kBF16, 20, 40), out(DType::kBF16, 20, 40);
    in.FillNormal(random);
    in.Set(3, 39, NAN);
    RunRows(path, weights, in, out, 0, 20, TestPool());
    for (int64_t row = 0; row < 20; ++row) {
      for (int64_t column = 0; column < 40; ++column) {
        CHECK(std::isnan(out.Get(row, column)) == (row == 3));
      }
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
