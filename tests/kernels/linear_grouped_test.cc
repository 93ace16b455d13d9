// GroupedLinear: one linear per expert over rows sorted by expert, equal to the experts one by one.
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>

#include "tests/kernels/linear_paths.h"

namespace tessera::kernels {
namespace {

struct Grouped {
  int64_t rows;
  std::vector<int32_t> offsets;  // experts + 1
  bool gather;
};

void Check(const LinearPath& path, LinearSpec spec, DType activation, const Grouped& c) {
  std::mt19937 random(11);
  spec.in_features = 150, spec.out_features = 70;
  const int64_t experts = static_cast<int64_t>(c.offsets.size()) - 1;
  const int64_t slots = c.offsets.back(), padded_slots = slots + 3;
  std::vector<std::unique_ptr<TestWeights>> weights;
  std::vector<PackedWeights> packed;
  for (int64_t e = 0; e < experts; ++e) {
    weights.push_back(std::make_unique<TestWeights>(path, spec, random));
    packed.push_back(weights.back()->packed);
  }
  Matrix in(activation, c.rows, spec.in_features), out(activation, padded_slots, spec.out_features);
  in.FillNormal(random);
  std::vector<int32_t> sources(padded_slots);
  for (int64_t slot = 0; slot < padded_slots; ++slot) {
    sources[slot] = static_cast<int32_t>(c.gather ? random() % c.rows : slot);
  }
  Memory workspace(path.workspace_bytes(spec, padded_slots));
  std::vector<int32_t> offsets = c.offsets;
  GroupedLinearArgs args;
  args.out = out.view;
  args.in = in.view;
  args.experts = packed;
  if (c.gather) args.source_rows = TensorView(sources.data(), DType::kI32, {padded_slots});
  args.expert_offsets = TensorView(offsets.data(), DType::kI32, {experts + 1});
  args.workspace = TensorView(workspace.data(), DType::kI8, {1});
  path.run_grouped(args, TestPool());

  INFO(path.name << " weights " << Name(spec.weight_dtype) << " activations " << Name(activation));
  const float tolerance =
      LinearTolerance(activation, DType::kF32) * 40.0f;  // results reach some 40
  for (int64_t e = 0; e < experts; ++e) {
    for (int64_t slot = c.offsets[e]; slot < c.offsets[e + 1]; ++slot) {
      for (int64_t column = 0; column < spec.out_features; ++column) {
        double expected = 0.0;
        for (int64_t i = 0; i < spec.in_features; ++i) {
          expected +=
              static_cast<double>(in.Get(sources[slot], i)) * weights[e]->values.Get(column, i);
        }
        REQUIRE(std::abs(out.Get(slot, column) - expected) <= tolerance);
      }
    }
  }
  for (int64_t slot = 0; slot < c.offsets.front(); ++slot) CHECK(std::isnan(out.Get(slot, 0)));
  for (int64_t slot = slots; slot < padded_slots; ++slot) CHECK(std::isnan(out.Get(slot, 0)));
}

TEST_CASE("grouped linear: empty experts, one row, many rows, gathered and in order") {
  const Grouped cases[] = {
      {.rows = 20, .offsets = {0, 0, 1, 1, 9, 20, 20}, .gather = false},
      {.rows = 7, .offsets = {0, 3, 3, 14, 15}, .gather = true},
      {.rows = 5, .offsets = {0, 0, 0}, .gather = true},
      {.rows = 400, .offsets = {0, 10, 600, 601, 1200}, .gather = true},  // over several chunks
      {.rows = 60, .offsets = {7, 9, 40}, .gather = true},  // experts before are another rank's
      {.rows = 300, .offsets = {290, 300}, .gather = false},
  };
  for (const LinearPath& path : LinearPaths()) {
    for (const Grouped& c : cases) {
      for (DType weight : {DType::kF32, DType::kBF16, DType::kI8, DType::kF8, DType::kI4}) {
        Check(path, {.weight_dtype = weight}, DType::kF32, c);
        Check(path, {.weight_dtype = weight}, DType::kBF16, c);
      }
      const LinearSpec offsets = {
          .weight_dtype = DType::kI4, .group_size = 32, .blocks = {.size = 64, .skipped = 32}};
      Check(path, offsets, DType::kF32, c);
      Check(path, offsets, DType::kBF16, c);
    }
  }
}

TEST_CASE("grouped linear: a slot has the bits of the plain linear") {
  std::mt19937 random(21);
  const LinearSpec spec = {.in_features = 90, .out_features = 50};
  for (const LinearPath& path : LinearPaths()) {
    const TestWeights first(path, spec, random), second(path, spec, random);
    const PackedWeights packed[] = {first.packed, second.packed};
    Matrix in(DType::kF32, 30, 90), grouped(DType::kF32, 30, 50), plain(DType::kF32, 30, 50);
    in.FillNormal(random);
    int32_t offsets[] = {0, 13, 30};
    Memory workspace(path.workspace_bytes(spec, 30));
    GroupedLinearArgs args;
    args.out = grouped.view;
    args.in = in.view;
    args.experts = packed;
    args.expert_offsets = TensorView(offsets, DType::kI32, {3});
    args.workspace = TensorView(workspace.data(), DType::kI8, {1});
    path.run_grouped(args, TestPool());

    LinearArgs rest;
    rest.out = plain.view;
    rest.in = in.view;
    rest.weights = &second.packed;
    rest.workspace = args.workspace;
    path.run(rest, TestPool());
    CHECK(std::memcmp(grouped.view.Row<float>(13), plain.view.Row<float>(13), 17 * 50 * 4) == 0);
    rest.out = plain.view.Rows(13);
    rest.in = in.view.Rows(13);
    rest.weights = &first.packed;
    path.run(rest, OneThread());
    CHECK(std::memcmp(grouped.view.Row<float>(0), plain.view.Row<float>(0), 13 * 50 * 4) == 0);
  }
}

}  // namespace
}  // namespace tessera::kernels
