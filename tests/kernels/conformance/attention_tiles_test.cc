// Attention over AMX tiles where there is no AMX: its tile instructions are emulated.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cpu/isa.h"
#include "tests/kernels/attention_emulated_tiles.h"
#include "tests/kernels/conformance/attention_case.h"
#include "third_party/linux/cpu_share.h"

namespace tessera::kernels::conformance {
namespace {

// None on a processor without what is not emulated.
std::vector<AttentionKernel> Emulated() {
  if (!DetectCpuFeatures().avx512_bf16) return {};
  return {{&emulated::TileAttentionWorkspaceBytes, &emulated::TileAttention}};
}

AttentionCase Rounded(std::vector<Sequence> sequences) {
  AttentionCase c = {.sequences = std::move(sequences)};
  c.cache = c.products = DType::kBF16;
  return c;
}

ThreadPool& Pool() {
  static const std::unique_ptr<ThreadPool> pool = [] {
    auto made = ThreadPool::Create({.cores = AffinityCores(), .cores_shared = true});
    REQUIRE(made.ok());
    return *std::move(made);
  }();
  return *pool;
}

TEST_CASE("emulated tiles: head dimensions, groups and windows against the reference") {
  const auto [heads, kv_heads] =
      GENERATE(table<int64_t, int64_t>({{4, 4}, {7, 1}, {16, 2}, {40, 1}}));
  const int64_t head_dim = GENERATE(20, 32, 64, 96, 128);
  const int64_t window = GENERATE(0, 33);
  CAPTURE(heads, kv_heads, head_dim, window);
  AttentionCase c = Rounded({{1, 37, 1}, {5, 5, 2}, {0, 20, 3}, {40, 90, 4}, {1, 600, 5}});
  c.heads = heads;
  c.kv_heads = kv_heads;
  c.head_dim = head_dim;
  c.window = window;
  for (const AttentionKernel& kernel : Emulated()) {
    CHECK(Difference(RunAttention(kernel, Pool(), c), RunAttention(Reference(), c), 1e-2) == "");
  }
}

TEST_CASE("emulated tiles: scores that grow along the context") {
  const float growth = GENERATE(0.02f, 2.0f);
  AttentionCase c = Rounded({{70, 300, 1}, {1, 500, 2}, {330, 330, 3}});
  c.activation = DType::kBF16;
  c.key_growth = growth;
  for (const AttentionKernel& kernel : Emulated()) {
    CHECK(Difference(RunAttention(kernel, Pool(), c), RunAttention(Reference(), c), 1e-2) == "");
  }
}

// Items of many rows, whose values are turned, against those of few, whose weights are.
TEST_CASE("emulated tiles: rows of a long prompt have the bits that they have alone") {
  const int64_t head_dim = GENERATE(32, 64, 96, 128);
  const int64_t window = GENERATE(0, 100);
  const float growth = GENERATE(0.0f, 0.02f);
  const int64_t nan_key = GENERATE(-1, 250);
  CAPTURE(head_dim, window, growth, nan_key);
  AttentionCase c = Rounded({{700, 1100, 1}});
  c.heads = 8;
  c.head_dim = head_dim;
  c.window = window;
  c.key_growth = growth;
  c.nan_key = nan_key;
  for (const AttentionKernel& kernel : Emulated()) {
    const std::vector<float> whole = RunAttention(kernel, Pool(), c);
    const auto width = static_cast<int64_t>(whole.size()) / 700;
    for (const int64_t end : {401, 450, 1100}) {
      c.sequences = {{2, 70, 2}, {1, end, 1}};
      const std::vector<float> row = RunAttention(kernel, Pool(), c);
      CAPTURE(end);
      CHECK(std::memcmp(row.data() + 2 * width, whole.data() + (end - 401) * width,
                        width * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("emulated tiles: partitions of items of many rows are folded as those of few") {
  AttentionCase c = Rounded({{400, 2300, 1}});
  c.heads = c.kv_heads = 8;
  for (const AttentionKernel& kernel : Emulated()) {
    const std::vector<float> whole = RunAttention(kernel, Pool(), c);
    const auto width = static_cast<int64_t>(whole.size()) / 400;
    for (const int64_t end : {1901, 2049, 2300}) {
      c.sequences = {{1, end, 1}};
      const std::vector<float> row = RunAttention(kernel, Pool(), c);
      CAPTURE(end);
      CHECK(std::memcmp(row.data(), whole.data() + (end - 1901) * width, width * sizeof(float)) ==
            0);
    }
  }
}

TEST_CASE("emulated tiles: a row's bits depend on nothing beside it") {
  for (const AttentionKernel& kernel : Emulated()) {
    const std::vector<float> whole = RunAttention(kernel, Pool(), Rounded({{130, 130, 1}}));
    const auto width = static_cast<int64_t>(whole.size()) / 130;
    for (const int64_t rows : {1, 3, 17, 64}) {
      CAPTURE(rows);
      const std::vector<float> part =
          RunAttention(kernel, Pool(), Rounded({{2, 70, 2}, {rows, 130, 1}}));
      CHECK(std::equal(whole.end() - rows * width, whole.end(), part.end() - rows * width));
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::conformance
