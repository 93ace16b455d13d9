// Paged attention against the reference; and a row's bits against its surroundings.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "tests/kernels/conformance/attention_case.h"

namespace tessera::kernels::conformance {
namespace {

void CheckCase(const AttentionCase& c) {
  const bool rounded_products = c.products == DType::kBF16 && c.cache != DType::kF32;
  const bool rounded = c.activation == DType::kBF16 || rounded_products;
  const std::vector<float> expected = RunAttention(Reference(), c);
  for (Path* path : PathsWith("Attention")) {
    // Slow: there large heads are attended on tensor cores, or all in float32.
    const bool tensor_cores =
        HasKvScales(c.cache) ? c.products != DType::kF32 : c.products == c.cache;
    if (path == CudaEmulated() && !tensor_cores && c.head_dim > 32) continue;
    INFO("path " << path->name());
    CHECK(Difference(RunAttention(*path, c), expected, rounded ? 1e-2 : 1e-5) == "");
  }
}

TEST_CASE("attention: head dimensions, groups and types over a mixed batch") {
  const auto [heads, kv_heads] =
      GENERATE(table<int64_t, int64_t>({{4, 4}, {4, 2}, {7, 1}, {12, 3}}));
  const int64_t head_dim = GENERATE(16, 20, 32, 64, 80, 96, 128, 256);
  const DType activation = GENERATE(DType::kF32, DType::kBF16);
  const DType cache = GENERATE(DType::kF32, DType::kBF16);
  const DType products = GENERATE(DType::kF32, DType::kBF16);
  CAPTURE(heads, kv_heads, head_dim, Name(activation), Name(cache), Name(products));
  CheckCase({.sequences = {{1, 37, 1}, {5, 5, 2}, {0, 20, 3}, {9, 70, 4}, {1, 1, 5}, {0, 0, 6}},
             .heads = heads,
             .kv_heads = kv_heads,
             .head_dim = head_dim,
             .activation = activation,
             .cache = cache,
             .products = products});
}

// Codes and scales (kernels/kv_rows.h), and what becomes of them in each arithmetic.
TEST_CASE("attention: keys and values in 8 bits, over blocks and windows of all kinds") {
  const auto [heads, kv_heads, head_dim] = GENERATE(
      table<int64_t, int64_t, int64_t>({{4, 4, 20}, {12, 2, 64}, {7, 1, 33}, {8, 2, 128}}));
  const DType cache = GENERATE(DType::kI8, DType::kF8);
  const DType products = GENERATE(DType::kF32, DType::kBF16);
  const auto [window, block_tokens] =
      GENERATE(table<int64_t, int64_t>({{0, 16}, {40, 16}, {0, 24}}));
  CAPTURE(heads, head_dim, Name(cache), Name(products), window, block_tokens);
  AttentionCase attention = {
      .sequences = {{1, 37, 1}, {5, 5, 2}, {0, 20, 3}, {70, 200, 4}, {2, 300, 5}},
      .heads = heads,
      .kv_heads = kv_heads,
      .head_dim = head_dim,
      .block_tokens = block_tokens,
      .window = window,
      .activation = products,
      .cache = cache,
      .products = products,
      .sinks = window > 0};
  CheckCase(attention);
  // They are near what they were made of.
  const std::vector<float> codes = RunAttention(Reference(), attention);
  attention.cache = DType::kF32;
  CHECK(Difference(codes, RunAttention(Reference(), attention),
                   cache == DType::kI8 ? 0.03 : 0.12) == "");
}

TEST_CASE("attention: in 8 bits a row's bits depend on nothing beside it, whatever is split") {
  const DType cache = GENERATE(DType::kI8, DType::kF8);
  const DType products = GENERATE(DType::kF32, DType::kBF16);
  CAPTURE(Name(cache), Name(products));
  for (Path* path : PathsWith("Attention")) {
    INFO("path " << path->name());
    const bool cuda = path == CudaEmulated() || path == Gpu();
    AttentionCase c = {.sequences = {{1, cuda ? 300 : 2300, 1}},
                       .heads = 2,
                       .kv_heads = 1,
                       .head_dim = 64,
                       .cache = cache,
                       .products = products};
    const std::vector<float> alone = RunAttention(*path, c);
    c.sequences.insert(c.sequences.begin(), {{9, 40, 2}, {1, 70, 3}});
    c.layout_seed = 5;
    const std::vector<float> among = RunAttention(*path, c);
    CHECK(std::equal(alone.rbegin(), alone.rend(), among.rbegin()));
    // The same row, the last of several. (A GPU has other sums for more than kCodeFewRows.)
    c.sequences = {{cuda ? 8 : 30, c.sequences.back().context_length, 1}};
    const std::vector<float> of_many = RunAttention(*path, c);
    CHECK(std::equal(alone.rbegin(), alone.rend(), of_many.rbegin()));
  }
}

// Gemma 4's layers that see everything have heads of 512; of 576 are latents and their key.
TEST_CASE("attention: heads of 512 and 576") {
  const DType type = GENERATE(DType::kF32, DType::kBF16);  // of activations, cache and products
  const int64_t head_dim = GENERATE(512, 576);
  const auto [window, chunked, sinks, soft_cap] = GENERATE(table<int64_t, bool, bool, float>(
      {{0, false, false, 0}, {24, false, true, 0}, {24, true, false, 30}}));
  CAPTURE(Name(type), head_dim, window, chunked);
  CheckCase({.sequences = {{1, 70, 1}, {9, 40, 2}},
             .heads = 4,
             .kv_heads = 1,
             .head_dim = head_dim,
             .window = window,
             .activation = type,
             .cache = type,
             .products = type,
             .soft_cap = soft_cap,
             .sinks = sinks,
             .chunked = chunked});
}

TEST_CASE("attention: an odd head dimension, and whole tiles of many rows") {
  const DType products = GENERATE(DType::kF32, DType::kBF16);
  const int64_t head_dim = GENERATE(1, 33, 47);
  CAPTURE(head_dim, Name(products));
  CheckCase({.sequences = {{130, 200, 1}, {64, 64, 2}},
             .heads = 6,
             .kv_heads = 2,
             .head_dim = head_dim,
             .cache = DType::kBF16,
             .products = products});
}

TEST_CASE("attention: windows, and blocks before the window that are gone") {
  const int64_t window = GENERATE(1, 2, 16, 33, 64, 100, 1000);
  const int64_t block_tokens = GENERATE(1, 8, 16, 24, 64);
  const DType rounded = GENERATE(DType::kF32, DType::kBF16);  // cache and products
  CAPTURE(window, block_tokens, Name(rounded));
  CheckCase({.sequences = {{1, 200, 1}, {40, 90, 2}, {70, 70, 3}},
             .block_tokens = block_tokens,
             .window = window,
             .cache = rounded,
             .products = rounded});
}

TEST_CASE("attention: chunks, of which a row sees its own alone, and blocks before it are gone") {
  const int64_t chunk = GENERATE(1, 7, 16, 64, 100, 1000);
  const int64_t block_tokens = GENERATE(1, 16, 24);
  const int64_t head_dim = GENERATE(20, 64);
  const auto [rounded, products] = GENERATE(table<DType, DType>(
      {{DType::kF32, DType::kF32}, {DType::kBF16, DType::kBF16}, {DType::kI8, DType::kBF16}}));
  CAPTURE(chunk, block_tokens, head_dim, Name(rounded));
  AttentionCase attention = {
      .sequences = {{1, 200, 1}, {40, 90, 2}, {70, 70, 3}, {1, 193, 4}, {1, 2300, 5}},
      .head_dim = head_dim,
      .block_tokens = block_tokens,
      .window = chunk,
      .cache = rounded,
      .products = products,
      .chunked = true};
  CheckCase(attention);
  if (chunk != 64) return;
  // The token at position 192 begins a chunk: it sees itself, and its value is what comes out.
  attention.sequences = {{1, 193, 4}};
  attention.cache = attention.products = DType::kF32;
  attention.window = 1;
  attention.chunked = false;
  const std::vector<float> itself = RunAttention(Reference(), attention);
  attention.window = chunk;
  attention.chunked = true;
  CHECK(RunAttention(Reference(), attention) == itself);
}

TEST_CASE("attention: sinks take their part of a row's weights") {
  const int64_t window = GENERATE(0, 40);
  const auto [heads, kv_heads, head_dim] =
      GENERATE(table<int64_t, int64_t, int64_t>({{4, 2, 20}, {6, 1, 64}, {8, 2, 128}}));
  const DType cache = GENERATE(DType::kF32, DType::kBF16);
  const DType products = GENERATE(DType::kF32, DType::kBF16);
  CAPTURE(window, heads, head_dim, Name(cache), Name(products));
  // One row, several, many, and contexts that are split.
  AttentionCase attention = {
      .sequences = {{1, 1, 1}, {1, 37, 2}, {9, 70, 3}, {130, 200, 4}, {1, 2300, 5}, {3, 2060, 6}},
      .heads = heads,
      .kv_heads = kv_heads,
      .head_dim = head_dim,
      .window = window,
      .cache = cache,
      .products = products,
      .sinks = true};
  CheckCase(attention);
  const std::vector<float> with = RunAttention(Reference(), attention);
  attention.sinks = false;
  const std::vector<float> without = RunAttention(Reference(), attention);
  // They are about as large as scores: outputs shrink, and keep their signs.
  double shrunk = 0, all = 0;
  for (size_t i = 0; i < with.size(); ++i) {
    CHECK(std::abs(with[i]) <= std::abs(without[i]));
    shrunk += std::abs(with[i]);
    all += std::abs(without[i]);
  }
  CHECK(shrunk < 0.999 * all);
}

TEST_CASE("attention: contexts over several partitions") {
  const int64_t window = GENERATE(0, 600);
  const auto [heads, head_dim, block_tokens] =
      GENERATE(table<int64_t, int64_t, int64_t>({{2, 32, 16}, {6, 64, 64}, {2, 96, 80}}));
  const DType cache = GENERATE(DType::kF32, DType::kBF16);
  const DType products = GENERATE(DType::kF32, DType::kBF16);
  CAPTURE(window, heads, head_dim, block_tokens, Name(cache), Name(products));
  CheckCase({.sequences = {{1, 4200, 1}, {20, 2060, 2}, {1, 2048, 3}, {1, 2049, 4}, {3, 1025, 5}},
             .heads = heads,
             .kv_heads = 1,
             .head_dim = head_dim,
             .block_tokens = block_tokens,
             .window = window,
             .cache = cache,
             .products = products});
}

TEST_CASE("attention: more query heads per kv head than an item takes") {
  CheckCase({.sequences = {{3, 50, 1}, {1, 9, 2}}, .heads = 71, .kv_heads = 1, .head_dim = 64});
}

TEST_CASE("attention: rows that see a key of NaN are NaN, all others are not") {
  const auto [cache, products] = GENERATE(table<DType, DType>({{DType::kF32, DType::kF32},
                                                               {DType::kBF16, DType::kF32},
                                                               {DType::kBF16, DType::kBF16},
                                                               {DType::kI8, DType::kF32},
                                                               {DType::kF8, DType::kBF16}}));
  for (const int64_t nan_key : {0, 70, 98, 2048}) {
    CAPTURE(Name(cache), Name(products), nan_key);
    // Rows at positions 60 to 99, and one that sees every key.
    const AttentionCase c = {.sequences = {{40, 100, 1}, {1, 2049, 2}},
                             .heads = 8,
                             .kv_heads = 1,
                             .cache = cache,
                             .products = products,
                             .nan_key = nan_key};
    const int64_t width = c.heads * c.head_dim;
    for (Path* path : PathsWith("Attention")) {
      const std::vector<float> out = RunAttention(*path, c);
      for (int64_t i = 0; i < 41 * width; ++i) {
        const bool sees = i / width == 40 || 60 + i / width >= nan_key;
        if (std::isnan(out[i]) != sees) {
          FAIL("row " << i / width << " of " << path->name() << ": " << out[i]);
        }
      }
    }
  }
}

TEST_CASE("attention: soft caps of scores, in every type that may be asked for") {
  // Cache, products and heads.
  const auto [cache, products, head_dim] =
      GENERATE(table<DType, DType, int64_t>({{DType::kF32, DType::kF32, 32},
                                             {DType::kBF16, DType::kBF16, 32},
                                             {DType::kBF16, DType::kBF16, 64},
                                             {DType::kBF16, DType::kBF16, 128},
                                             {DType::kBF16, DType::kBF16, 256},
                                             {DType::kI8, DType::kBF16, 64},
                                             {DType::kF8, DType::kBF16, 128}}));
  const float soft_cap = GENERATE(0.7f, 50.0f);
  const int64_t window = GENERATE(0, 33);
  CAPTURE(Name(cache), Name(products), head_dim, soft_cap, window);
  CheckCase({.sequences = {{1, 37, 1}, {5, 5, 2}, {9, 170, 4}},
             .head_dim = head_dim,
             .window = window,
             .cache = cache,
             .products = products,
             .soft_cap = soft_cap});
}

TEST_CASE("attention: scores that grow along the context") {
  const DType products = GENERATE(DType::kF32, DType::kBF16);
  const float growth = GENERATE(0.02f, 2.0f);
  CAPTURE(Name(products), growth);
  CheckCase({.sequences = {{70, 300, 1}, {1, 500, 2}, {330, 330, 3}},
             .activation = DType::kBF16,
             .cache = DType::kBF16,
             .products = products,
             .key_growth = growth});
}

TEST_CASE("attention: nothing to do") {
  for (Path* path : PathsWith("Attention")) {
    CHECK(RunAttention(*path, {.sequences = {{0, 10, 1}, {0, 0, 2}}}).empty());
  }
}

// The rows [first, first + count) of one sequence, alone.
std::vector<float> Alone(Path& path, AttentionCase c, const Sequence& whole, int64_t first,
                         int64_t count) {
  c.sequences = {{count, first + count, whole.seed}};
  return RunAttention(path, c);
}

TEST_CASE("attention: a row's bits depend on nothing beside it") {
  const auto [heads, kv_heads] = GENERATE(table<int64_t, int64_t>({{4, 4}, {12, 2}}));
  const int64_t window = GENERATE(0, 100);
  const int64_t head_dim = GENERATE(20, 64);
  const DType rounded = GENERATE(DType::kF32, DType::kBF16);  // cache and products
  CAPTURE(heads, kv_heads, window, head_dim, Name(rounded));
  std::mt19937_64 random(7);
  for (Path* path : PathsWith("Attention")) {
    INFO("path " << path->name());
    const bool small = heads == 4 && head_dim == 20 && rounded == DType::kF32;
    if (path == CudaEmulated() && !small) continue;  // slow
    // Tensor cores sum a lone row in another order than one of many: their own invariance is in
    // tests/kernels/cuda/tensor_attention_test.cc.
    if (path == Gpu() && head_dim == 64 && rounded == DType::kBF16) continue;
    AttentionCase c = {.sequences = {},
                       .heads = heads,
                       .kv_heads = kv_heads,
                       .head_dim = head_dim,
                       .window = window,
                       .cache = rounded,
                       .products = rounded};
    // Whole prompts at once, each alone: what every other composition must repeat.
    const std::vector<Sequence> prompts = {{0, 700, 1}, {0, 130, 2}, {0, 64, 3}};
    std::vector<std::vector<float>> expected;
    for (const Sequence& prompt : prompts) {
      expected.push_back(Alone(*path, c, prompt, 0, prompt.context_length));
    }
    const int64_t width = heads * head_dim;
    for (int round = 0; round < 12; ++round) {
      c.sequences.clear();
      c.layout_seed = random();
      for (const Sequence& prompt : prompts) {
        const int64_t end = 1 + random() % prompt.context_length;
        const int64_t rows = round % 3 == 0 ? 1 : 1 + random() % std::min<int64_t>(end, 90);
        c.sequences.push_back({rows, end, prompt.seed});
      }
      std::shuffle(c.sequences.begin(), c.sequences.end(), random);
      const std::vector<float> actual = RunAttention(*path, c);
      auto row = actual.begin();
      for (const Sequence& s : c.sequences) {
        const auto& whole = expected[s.seed - 1];
        const auto from = whole.begin() + (s.context_length - s.query_rows) * width;
        CAPTURE(round, s.seed, s.query_rows, s.context_length);
        REQUIRE(std::equal(row, row + s.query_rows * width, from));
        row += s.query_rows * width;
      }
    }
  }
}

TEST_CASE("attention: sharing one long context between threads changes no bit") {
  const DType rounded = GENERATE(DType::kF32, DType::kBF16);  // cache and products
  for (Path* path : PathsWith("Attention")) {
    INFO("path " << path->name());
    // Alone the long row is shared; among many others each has a task of its own.
    AttentionCase c = {.sequences = {{1, 3000, 1}},
                       .heads = 2,
                       .kv_heads = 1,
                       .cache = rounded,
                       .products = rounded};
    const std::vector<float> alone = RunAttention(*path, c);
    for (uint64_t other = 2; other < 60; ++other) c.sequences.push_back({1, 600, other});
    const std::vector<float> among = RunAttention(*path, c);
    CHECK(std::equal(alone.begin(), alone.end(), among.begin()));
  }
}

}  // namespace
}  // namespace tessera::kernels::conformance
