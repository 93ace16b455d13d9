// Shapes that nobody thought of: drawn from fixed seeds, every path against the reference. What
// fails names all it was drawn as.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <random>
#include <string>

#include "tests/kernels/conformance/attention_case.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels::conformance {
namespace {

class Draw {
 public:
  explicit Draw(uint64_t seed) : generator_(seed) {}
  int64_t Between(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(generator_() % (most - least + 1));
  }
  DType Rounded() { return Between(0, 1) == 0 ? DType::kF32 : DType::kBF16; }

 private:
  std::mt19937_64 generator_;
};

AttentionCase DrawAttention(uint64_t seed) {
  Draw draw(seed);
  AttentionCase c;
  c.kv_heads = draw.Between(1, 5);
  c.heads = c.kv_heads * draw.Between(1, 9);
  c.head_dim = draw.Between(1, 140);
  c.block_tokens = draw.Between(1, 33);
  c.window = draw.Between(0, 2) == 0 ? draw.Between(1, 150) : 0;
  c.activation = draw.Rounded();
  c.cache = draw.Rounded();
  c.products = draw.Rounded();
  c.padding = draw.Between(0, 9);
  const int64_t sequences = draw.Between(1, 17);
  for (int64_t i = 0; i < sequences; ++i) {
    const int64_t context = draw.Between(1, draw.Between(0, 5) == 0 ? 700 : 90);
    const int64_t rows =
        draw.Between(0, 1) == 0 ? 1 : draw.Between(0, std::min<int64_t>(context, 80));
    c.sequences.push_back({rows, context, seed * 100 + i});
  }
  return c;
}

std::string Describe(const AttentionCase& c) {
  std::string text =
      StrCat(c.heads, "/", c.kv_heads, " heads of ", c.head_dim, ", blocks of ", c.block_tokens,
             ", window ", c.window, ", activation ", Name(c.activation), ", cache ", Name(c.cache),
             ", products ", Name(c.products), ", rows/context");
  for (const Sequence& s : c.sequences) text += StrCat(" ", s.query_rows, "/", s.context_length);
  return text;
}

TEST_CASE("attention: drawn shapes") {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const AttentionCase c = DrawAttention(seed);
    INFO("seed " << seed << ": " << Describe(c));
    const bool rounded =
        c.activation == DType::kBF16 || (c.products == DType::kBF16 && c.cache == DType::kBF16);
    CheckAgainstReference("Attention", rounded ? 1e-2 : 1e-5,
                          [&](Path& path) { return RunAttention(path, c); });
  }
}

// Every path multiplies the same weights: those that it packed itself, of one seed.
std::vector<float> RunLinear(Path& path, const LinearSpec& spec, DType activation, DType products,
                             int64_t rows, bool biased, uint64_t seed) {
  auto memory = path.device().Allocate(path.ops().PackedWeightBytes(spec));
  REQUIRE(memory.ok());
  const PackedWeights weights = {.spec = spec, .data = memory->data()};
  const Tensor source =
      Random(Reference(), DType::kF32, {spec.out_features, spec.in_features}, seed);
  REQUIRE(path.ops().PackWeightRows(weights, 0, source).ok());
  const Tensor in = Random(path, activation, {rows, spec.in_features}, seed + 1, 3);
  const Tensor bias = Random(path, DType::kF32, {spec.out_features}, seed + 2);
  const Tensor out = Zeros(path, activation, {rows, spec.out_features}, 5);
  LinearArgs args = {.out = out, .in = in, .weights = &weights};
  args.products = products;
  if (biased) args.bias = bias;
  args.workspace = path.Workspace(path.ops().LinearWorkspaceBytes(spec, rows, activation));
  REQUIRE(path.ops().Linear(args, path.stream()).ok());
  const std::vector<float> values = out.Read();
  CHECK(out.PaddingIntact());
  return values;
}

TEST_CASE("linear: drawn shapes") {
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    Draw draw(seed);
    const LinearSpec spec = {
        .in_features = draw.Between(1, 700),
        .out_features = draw.Between(1, 300),
        .weight_dtype = std::array{DType::kF32, DType::kBF16, DType::kI8}[draw.Between(0, 2)],
        .group_size = draw.Between(1, 128)};
    const DType activation = draw.Rounded(), products = draw.Rounded();
    const int64_t rows = draw.Between(1, draw.Between(0, 2) == 0 ? 140 : 17);
    const bool biased = draw.Between(0, 1) == 1;
    INFO("seed " << seed << ": " << spec.in_features << " to " << spec.out_features << ", weights "
                 << Name(spec.weight_dtype) << " in groups of " << spec.group_size
                 << ", activation " << Name(activation) << ", products " << Name(products) << ", "
                 << rows << " rows" << (biased ? ", bias" : ""));
    const bool rounded = activation == DType::kBF16 || products == DType::kBF16;
    CheckAgainstReference("Linear", rounded ? 1e-2 : 1e-5, [&](Path& path) {
      return RunLinear(path, spec, activation, products, rows, biased, seed);
    });
  }
}

}  // namespace
}  // namespace tessera::kernels::conformance
