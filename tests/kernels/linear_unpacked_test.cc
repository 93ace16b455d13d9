// Linears over weights as a checkpoint has them: the bits of the packed ones, before and after they
// are packed.
#include <catch2/catch.hpp>
#include <cstring>

#include "kernels/cpu/linear/packed_linear.h"
#include "tests/kernels/linear_paths.h"

namespace tessera::kernels {
namespace {

// Three matrices of a checkpoint that are one to the model: each stands for itself, the second is a
// slice of columns, and none begins on a cache line.
struct Fused {
  explicit Fused(std::mt19937& random) {
    Matrix* parts[] = {&query, &key, &value};
    int64_t row = 0;
    for (Matrix* part : parts) {
      part->FillNormal(random);
      TensorView rows = part->view;
      rows.data += 2 * kSkipped;
      rows.shape[1] = spec.in_features;
      unpacked.blocks.push_back({row, rows});
      row += rows.rows();
    }
  }
  void PackInto(const LinearPath& path, std::byte* data) const {
    for (const UnpackedRows::Block& block : unpacked.blocks) {
      REQUIRE(path.pack({spec, data}, block.first_row, block.rows).ok());
    }
  }

  static constexpr int64_t kSkipped = 3, kInputs = 288;  // inputs: a segment and part of one
  const LinearSpec spec = {
      .in_features = kInputs, .out_features = 64 + 32 + 32, .weight_dtype = DType::kBF16};
  Matrix query{DType::kBF16, 64, kInputs + kSkipped};
  Matrix key{DType::kBF16, 32, kInputs + kSkipped, 2 * kInputs};
  Matrix value{DType::kBF16, 32, kInputs + kSkipped};
  UnpackedRows unpacked;
};

struct Call {
  DType activations;
  DType products;
  int64_t rows;
};

void Run(const LinearPath& path, const PackedWeights& weights, const Call& call, const Matrix& in,
         const Matrix& out) {
  const Memory workspace(path.workspace_bytes(weights.spec, call.rows));
  LinearArgs args;
  args.out = out.view;
  args.in = in.view;
  args.weights = &weights;
  args.workspace = TensorView(workspace.data(), DType::kI8, {1});
  args.products = call.products;
  path.run(args, TestPool());
}

bool SameBits(const Matrix& a, const Matrix& b) {
  return std::memcmp(a.view.data, b.view.data, a.view.Elements() * SizeInBytes(a.view.dtype)) == 0;
}

TEST_CASE("linear unpacked: the bits of packed weights, then those of what was packed") {
  std::mt19937 random(21);
  Fused fused(random), other(random);
  for (const LinearPath& path : LinearPaths()) {
    const Memory packed(path.packed_bytes(fused.spec)), unwritten(path.packed_bytes(fused.spec));
    fused.PackInto(path, packed.data());
    const Memory some(path.packed_bytes(fused.spec));
    std::memcpy(some.data(), packed.data(), path.packed_bytes(fused.spec) / 2);
    for (const Call& call :
         {Call{DType::kBF16, DType::kF32, 1}, Call{DType::kF32, DType::kF32, 5},
          Call{DType::kF32, DType::kBF16, 17}, Call{DType::kBF16, DType::kBF16, 600}}) {
      INFO(path.name << ", " << call.rows << " rows of " << Name(call.activations));
      Matrix in(call.activations, call.rows, fused.spec.in_features);
      in.FillNormal(random);
      const Matrix expected(call.activations, call.rows, fused.spec.out_features),
          out(call.activations, call.rows, fused.spec.out_features);
      Run(path, {fused.spec, packed.data()}, call, in, expected);
      fused.unpacked.packed_rows = 0;
      Run(path, {fused.spec, unwritten.data(), &fused.unpacked}, call, in, out);
      CHECK(SameBits(out, expected));

      // Some of the panels, and part of one.
      fused.unpacked.packed_rows = 70;
      Run(path, {fused.spec, some.data(), &fused.unpacked}, call, in, out);
      CHECK(SameBits(out, expected));

      // The rows are forgotten: only the packed ones give these results.
      other.unpacked.packed_rows = fused.spec.out_features;
      Run(path, {fused.spec, packed.data(), &other.unpacked}, call, in, out);
      CHECK(SameBits(out, expected));
    }
  }
}

TEST_CASE("linear unpacked: experts, of which some are packed") {
  std::mt19937 random(22);
  const Fused first(random), second(random), third(random);
  for (const LinearPath& path : LinearPaths()) {
    const int64_t bytes = path.packed_bytes(first.spec);
    const Memory memories[] = {Memory(bytes), Memory(bytes), Memory(bytes), Memory(bytes)};
    first.PackInto(path, memories[0].data());
    second.PackInto(path, memories[1].data());
    third.PackInto(path, memories[2].data());
    const LinearSpec& spec = first.spec;
    const PackedWeights all_packed[] = {
        {spec, memories[0].data()}, {spec, memories[1].data()}, {spec, memories[2].data()}};
    const PackedWeights some[] = {{spec, memories[3].data(), &first.unpacked},
                                  {spec, memories[1].data()},
                                  {spec, memories[3].data(), &third.unpacked}};
    constexpr int64_t kSlots = 700;
    int32_t offsets[] = {0, 3, 600, kSlots};
    Matrix in(DType::kBF16, kSlots, spec.in_features);
    in.FillNormal(random);
    const Matrix expected(DType::kBF16, kSlots, spec.out_features),
        out(DType::kBF16, kSlots, spec.out_features);
    const Memory workspace(path.workspace_bytes(spec, kSlots));
    GroupedLinearArgs args;
    args.in = in.view;
    args.expert_offsets = TensorView(offsets, DType::kI32, {4});
    args.workspace = TensorView(workspace.data(), DType::kI8, {1});
    args.out = expected.view;
    args.experts = all_packed;
    path.run_grouped(args, TestPool());
    args.out = out.view;
    args.experts = some;
    path.run_grouped(args, TestPool());
    INFO(path.name);
    CHECK(SameBits(out, expected));
  }
}

TEST_CASE("linear unpacked: rows come back, and what no panel takes is not computed so") {
  std::mt19937 random(23);
  Fused fused(random);
  for (const LinearPath& path : LinearPaths()) {
    const Memory unwritten(path.packed_bytes(fused.spec));
    const Matrix back(DType::kF32, 2, fused.spec.in_features);
    path.unpack({fused.spec, unwritten.data(), &fused.unpacked}, 95, back.view);
    for (int64_t i = 0; i < fused.spec.in_features; ++i) {
      CHECK(back.Get(0, i) == fused.key.Get(31, i + Fused::kSkipped));
      CHECK(back.Get(1, i) == fused.value.Get(0, i + Fused::kSkipped));
    }
  }
  CHECK(cpu::ComputesUnpacked(fused.spec, fused.unpacked));
  const auto refused = [&](auto change) {
    LinearSpec spec = fused.spec;
    UnpackedRows rows;
    rows.blocks = fused.unpacked.blocks;
    change(spec, rows);
    return !cpu::ComputesUnpacked(spec, rows);
  };
  using Rows = UnpackedRows;
  CHECK(refused([](LinearSpec& spec, Rows&) { spec.weight_dtype = DType::kI8; }));
  CHECK(refused([](LinearSpec& spec, Rows&) { spec.out_features += 32; }));
  CHECK(refused([](LinearSpec&, Rows& rows) { rows.blocks.pop_back(); }));
  CHECK(refused([](LinearSpec&, Rows& rows) { rows.blocks[1].rows.dtype = DType::kF16; }));
  CHECK(refused([](LinearSpec& spec, Rows& rows) {  // a panel over two blocks
    spec.out_features = 64;
    rows.blocks.pop_back();
    rows.blocks[0].rows.shape[0] = 40;
    rows.blocks[1].first_row = 40;
    rows.blocks[1].rows.shape[0] = 24;
  }));
  CHECK(refused([](LinearSpec& spec, Rows& rows) {  // part of a cache line
    spec.in_features = 280;
    for (Rows::Block& block : rows.blocks) block.rows.shape[1] = 280;
  }));
}

}  // namespace
}  // namespace tessera::kernels
