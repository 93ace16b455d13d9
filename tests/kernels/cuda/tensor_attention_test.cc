// Attention on tensor cores against double loops, and a row's bits against what stands beside it.
#include "kernels/cuda/attention/tensor_attention.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <tuple>
#include <vector>

#include "kernels/cuda/launch/attention_shapes.h"
#include "kernels/half_floats.h"
#include "tests/kernels/cuda/test_device.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

struct Sequence {
  int rows, context;  // the last `rows` of so many tokens
  uint64_t seed;      // the same seed is the same sequence
};

struct Case {
  std::vector<Sequence> sequences;
  int heads = 6, kv_heads = 2, head_dim = 64, block_tokens = 16, window = 0;
  DType cache = DType::kBF16;
  bool f32 = false, f32_out = false;  // queries, outputs; else as the cache
  int capability = 90;
  int64_t wave_bytes = kMaxPartialBytes;  // of what splits leave behind, in a launch
};

constexpr int kIdleRows = 2;  // behind the last sequence
constexpr float kUntouched = 77;

float RoundAs(DType dtype, float value) {
  return dtype == DType::kBF16 ? ToFloat(FromFloat<BFloat16>(value))
                               : ToFloat(FromFloat<Float16>(value));
}

uint16_t BitsAs(DType dtype, float value) {
  return dtype == DType::kBF16 ? FromFloat<BFloat16>(value).bits : FromFloat<Float16>(value).bits;
}

float FloatAs(DType dtype, uint16_t bits) {
  return dtype == DType::kBF16 ? ToFloat(BFloat16{bits}) : ToFloat(Float16{bits});
}

// Numbers of the cache's type, of one token: 0 its keys, 1 its values, 2 its queries.
std::vector<float> TokenNumbers(const Case& c, const Sequence& s, int position, int which) {
  std::mt19937_64 random(s.seed * 1000003 + static_cast<uint64_t>(position) * 3 + which);
  std::vector<float> numbers((which == 2 ? c.heads : c.kv_heads) * c.head_dim);
  for (float& number : numbers) {
    const float uniform = static_cast<float>(random() >> 40) * 0x1p-23f - 1;
    number = RoundAs(c.cache, which == 2 ? 4 * uniform : uniform);
  }
  return numbers;
}

// [rows, heads, head_dim] of all sequences.
std::vector<double> Expected(const Case& c) {
  std::vector<double> expected;
  for (const Sequence& s : c.sequences) {
    std::vector<std::vector<float>> keys, values;
    for (int p = 0; p < s.context; ++p) {
      keys.push_back(TokenNumbers(c, s, p, 0));
      values.push_back(TokenNumbers(c, s, p, 1));
    }
    for (int row = 0; row < s.rows; ++row) {
      const int end = s.context - s.rows + row + 1;
      const int begin = c.window == 0 ? 0 : std::max(0, end - c.window);
      const std::vector<float> queries = TokenNumbers(c, s, end - 1, 2);
      for (int head = 0; head < c.heads; ++head) {
        const int first = head / (c.heads / c.kv_heads) * c.head_dim;
        std::vector<double> weights(end), sums(c.head_dim);
        double largest = -INFINITY, total = 0;
        for (int p = begin; p < end; ++p) {
          for (int d = 0; d < c.head_dim; ++d) {
            weights[p] += double{queries[head * c.head_dim + d]} * keys[p][first + d];
          }
          weights[p] /= std::sqrt(c.head_dim);
          largest = std::max(largest, weights[p]);
        }
        for (int p = begin; p < end; ++p) {
          const double weight = std::exp(weights[p] - largest);
          total += weight;
          for (int d = 0; d < c.head_dim; ++d) sums[d] += weight * values[p][first + d];
        }
        for (const double sum : sums) expected.push_back(sum / total);
      }
    }
  }
  return expected;
}

// The same from the kernels, in the order of the sequences; idle rows must be as they were.
std::vector<float> Attend(TestDevice& device, const Case& c, uint64_t layout_seed = 1) {
  const auto sequences = static_cast<int>(c.sequences.size());
  std::vector<int32_t> starts = {0}, lengths;
  int width = 1, blocks = 3;
  for (const Sequence& s : c.sequences) {
    starts.push_back(starts.back() + s.rows);
    lengths.push_back(s.context);
    const int own = (s.context + c.block_tokens - 1) / c.block_tokens;
    width = std::max(width, own);
    blocks += own;
  }
  std::vector<int32_t> order(blocks), tables(sequences * width, -1);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(layout_seed));
  // Whatever no row may see is NaN.
  const int64_t plane = int64_t{blocks} * c.block_tokens * c.head_dim;
  const uint16_t nan = BitsAs(c.cache, NAN);
  std::vector<uint16_t> keys(c.kv_heads * plane, nan), values = keys;
  std::vector<float> queries;
  int next_block = 0;
  for (int i = 0; i < sequences; ++i) {
    const Sequence& s = c.sequences[i];
    const int first_row = s.context - s.rows;
    const int seen = c.window == 0 ? 0 : std::max(0, first_row + 1 - c.window);
    for (int p = 0; p < s.context; ++p) {
      int32_t& block = tables[i * width + p / c.block_tokens];
      if (p % c.block_tokens == 0) block = order[next_block++];
      if (p < seen) continue;
      const std::vector<float> k = TokenNumbers(c, s, p, 0), v = TokenNumbers(c, s, p, 1);
      for (int at = 0; at < c.kv_heads * c.head_dim; ++at) {
        const int64_t slot = int64_t{block} * c.block_tokens + p % c.block_tokens;
        const int64_t to = at / c.head_dim * plane + slot * c.head_dim + at % c.head_dim;
        keys[to] = BitsAs(c.cache, k[at]);
        values[to] = BitsAs(c.cache, v[at]);
      }
      if (p < first_row) continue;
      const std::vector<float> q = TokenNumbers(c, s, p, 2);
      queries.insert(queries.end(), q.begin(), q.end());
    }
  }
  const int rows = starts.back(), row_width = c.heads * c.head_dim;
  queries.resize((rows + kIdleRows) * row_width, NAN);
  std::vector<float> out_before(queries.size(), kUntouched);
  std::vector<uint16_t> half_queries, half_out;
  for (const float q : queries) half_queries.push_back(BitsAs(c.cache, q));
  for (const float o : out_before) half_out.push_back(BitsAs(c.cache, o));

  TensorAttentionParams params;
  AttentionParams& a = params.attention;
  void* const out = c.f32_out ? static_cast<void*>(device.Upload(out_before))
                              : static_cast<void*>(device.Upload(half_out));
  a.out = out;
  a.q = c.f32 ? static_cast<void*>(device.Upload(queries))
              : static_cast<void*>(device.Upload(half_queries));
  a.keys = device.Upload(keys);
  a.values = device.Upload(values);
  a.query_starts = device.Upload(starts);
  a.context_lengths = device.Upload(lengths);
  a.block_tables = device.Upload(tables);
  a.rows = rows + kIdleRows;
  a.sequences = sequences;
  a.heads = c.heads;
  a.kv_heads = c.kv_heads;
  a.head_dim = c.head_dim;
  a.block_tokens = c.block_tokens;
  a.window = c.window;
  a.out_stride = a.q_stride = row_width;
  a.keys_stride = a.values_stride = plane;
  a.table_stride = width;
  a.scale = 1 / std::sqrt(static_cast<float>(c.head_dim));
  a.cache_dtype = c.cache;
  a.dtype = c.f32 ? DType::kF32 : c.cache;
  a.out_dtype = c.f32_out ? DType::kF32 : c.cache;
  params.max_context = int64_t{width} * c.block_tokens;
  params.one_row = std::none_of(c.sequences.begin(), c.sequences.end(),
                                [](const Sequence& s) { return s.rows > 1 && s.rows <= kFewRows; });
  const int64_t bytes =
      PartialBytes({a.rows, a.sequences, a.heads, a.kv_heads, a.head_dim, params.max_context});
  params.partials = device.Allocate<float>(std::max<int64_t>(bytes, 4) / 4);
  params.capability = c.capability;
  params.wave_bytes = c.wave_bytes;
  if (IsWideHead(c.head_dim)) {
    device.Check(LaunchWideAttention(params, device.stream()));
  } else {
    device.Check(LaunchPrefillAttention(params, device.stream()));
    device.Check(LaunchDecodeAttention(params, device.stream()));
  }
  std::vector<float> result;
  if (c.f32_out) {
    result = device.Download(static_cast<float*>(out), (rows + kIdleRows) * row_width);
  } else {
    for (const uint16_t bits :
         device.Download(static_cast<uint16_t*>(out), (rows + kIdleRows) * row_width)) {
      result.push_back(FloatAs(c.cache, bits));
    }
  }
  for (int i = rows * row_width; i < (rows + kIdleRows) * row_width; ++i) {
    REQUIRE(result[i] == kUntouched);
  }
  result.resize(rows * row_width);
  return result;
}

std::vector<float> AttendInEverySchedule(const Case& c) {
  return RunEverySchedule<float>([&c](TestDevice& device) { return Attend(device, c); });
}

void CheckCase(const Case& c) {
  const std::vector<double> expected = Expected(c);
  const std::vector<float> actual = AttendInEverySchedule(c);
  REQUIRE(actual.size() == expected.size());
  double largest = 0, error = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    largest = std::max(largest, std::fabs(expected[i]));
    const double difference = std::fabs(actual[i] - expected[i]);
    error = std::max(error, std::isnan(difference) ? INFINITY : difference);
  }
  CHECK(error <= (c.cache == DType::kBF16 ? 1e-2 : 2e-3) * largest);
}

TEST_CASE("every head size and type over prompts, chunks and single rows") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  Case c = {.sequences = {{37, 37, 1}, {1, 90, 2}, {0, 20, 3}, {9, 130, 4}, {1, 1, 5}, {2, 2, 6}}};
  c.head_dim = GENERATE(64, 80, 96, 112, 120, 128, 160, 192, 256);
  c.cache = GENERATE(DType::kBF16, DType::kF16);
  std::tie(c.f32, c.f32_out) = GENERATE(table<bool, bool>({{false, false}, {true, true}}));
  if (PaddedHead(c.head_dim) != c.head_dim) {
    if (c.f32) return;  // once a type
    c.f32 = true;
  }
  CAPTURE(c.head_dim, Name(c.cache), c.f32, c.f32_out);
  CheckCase(c);
}

TEST_CASE("wide heads: prompts, chunks and single rows, of contexts whole and split") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  Case c = {
      .sequences = {{5, 37, 1}, {1, 70, 2}, {0, 20, 3}, {1, 1, 4}, {2, kWideSplitKeys + 3, 5}},
      .heads = 3,
      .kv_heads = 1};
  std::tie(c.head_dim, c.heads, c.kv_heads, c.window, c.cache, c.f32, c.f32_out) = GENERATE(
      table<int, int, int, int, DType, bool, bool>({{576, 17, 1, 0, DType::kBF16, true, true},
                                                    {576, 3, 1, 0, DType::kF16, false, false},
                                                    {512, 2, 2, 0, DType::kF16, true, false},
                                                    {512, 4, 2, 40, DType::kBF16, false, false}}));
  CAPTURE(c.head_dim, c.heads, c.window, Name(c.cache), c.f32, c.f32_out);
  CheckCase(c);
}

TEST_CASE("wide heads: a row's bits depend on its sequence alone, and not on the memory for sums") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  Case c = {.sequences = {{6, kWideSplitKeys + 4, 1}}, .heads = 5, .kv_heads = 1, .head_dim = 576};
  const size_t row_width = c.heads * c.head_dim;
  TestDevice device;
  const std::vector<float> whole = Attend(device, c);
  c.sequences = {{3, 9, 2}, {1, kWideSplitKeys + 4, 1}, {2, 70, 3}};
  for (const int64_t wave_bytes : {kMaxPartialBytes, int64_t{30000}}) {
    c.wave_bytes = wave_bytes;
    const std::vector<float> among = Attend(device, c, 3);
    CHECK(std::equal(whole.end() - row_width, whole.end(), among.begin() + 3 * row_width));
  }
  const std::vector<float> others = Attend(device, c, 5);
  for (const int capability : {80, 86, 120}) {
    c.capability = capability;
    CHECK(Attend(device, c) == others);
  }
}

TEST_CASE("groups of query heads: one, many, more than a matrix has rows") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  Case c = {.sequences = {{7, 70, 1}, {1, 40, 2}, {30, 30, 3}}};
  std::tie(c.heads, c.kv_heads) =
      GENERATE(table<int, int>({{3, 3}, {4, 1}, {16, 1}, {17, 1}, {71, 1}}));
  CAPTURE(c.heads, c.kv_heads);
  CheckCase(c);
}

TEST_CASE("windows, blocks of any size, and blocks before the window that are gone") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  Case c = {.sequences = {{1, 200, 1}, {40, 190, 2}, {70, 70, 3}, {1, 700, 4}}};
  c.heads = 2;
  c.window = GENERATE(1, 33, 64, 1000);
  c.block_tokens = GENERATE(1, 16, 24);
  CAPTURE(c.window, c.block_tokens);
  CheckCase(c);
}

TEST_CASE("single rows whose contexts end at, before and behind the end of a split") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  Case c = {.sequences = {{1, kSplitKeys - 1, 1},
                          {1, kSplitKeys, 2},
                          {1, kSplitKeys + 1, 3},
                          {1, 2 * kSplitKeys + 1, 4},
                          {1, 1600, 5},
                          {1, 1, 6}}};
  c.window = GENERATE(0, 70, 600);
  c.heads = 5;
  c.kv_heads = 1;
  CheckCase(c);
}

TEST_CASE("splits of long contexts are longer, and blocks compute several of them") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  CheckCase({.sequences = {{2, kLongContext + kLongSplitKeys + 1, 1}}, .heads = 1, .kv_heads = 1});
  // The last split is the second one of a block.
  Case c = {.sequences = {{1, kLongContext + 700, 1}}, .heads = 1, .kv_heads = 1};
  c.sequences.resize(kManyBlocks / kMinSplitBlocks, {1, 5, 2});
  CheckCase(c);
}

TEST_CASE("few rows of a sequence, on both sides of the end of a split, and with windows") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  Case c = {.sequences = {{5, kSplitKeys + 2, 1}, {kFewRows, 3 * kSplitKeys, 2}, {2, 40, 3}}};
  c.window = GENERATE(0, 70, 300);
  std::tie(c.heads, c.kv_heads) = GENERATE(table<int, int>({{3, 3}, {8, 2}, {17, 1}}));
  CAPTURE(c.window, c.heads, c.kv_heads);
  CheckCase(c);
}

TEST_CASE("many rows behind a context that prefill splits") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  Case c = {.sequences = {{12, kPrefillSplitKeys + 5, 1}, {1, 300, 2}, {9, 9, 3}}};
  c.heads = 2;
  c.window = GENERATE(0, 300);
  CheckCase(c);
}

TEST_CASE("where memory is short, a call's rows are computed in several launches") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  Case c = {.sequences = {{30, kPrefillSplitKeys + 20, 1}, {3, 600, 2}, {1, 300, 3}, {2, 700, 4}},
            .heads = 2,
            .kv_heads = 1,
            .f32 = true,
            .f32_out = true};
  TestDevice device;
  const std::vector<float> whole = Attend(device, c);
  c.wave_bytes = 20000;
  CHECK(Attend(device, c) == whole);
}

TEST_CASE("shared memory of every architecture: the same bits") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  Case c = {.sequences = {{20, 300, 1}, {1, 300, 2}}, .heads = 2, .cache = DType::kF16};
  c.head_dim = GENERATE(64, 128, 256);
  const std::vector<float> expected = AttendInEverySchedule(c);
  for (const int capability : {75, 80, 86, 120}) {
    CAPTURE(capability);
    c.capability = capability;
    CHECK(AttendInEverySchedule(c) == expected);
  }
}

// The last `rows` tokens of the first `context` of a sequence, alone.
std::vector<float> Alone(TestDevice& device, Case c, const Sequence& s) {
  c.sequences = {s};
  return Attend(device, c);
}

TEST_CASE("a row's bits depend on its sequence, and on whether that has few rows or many") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  Case c = {.sequences = {}, .f32 = true, .f32_out = true};
  c.window = GENERATE(0, 50);
  c.heads = GENERATE(2, 8);
  if (c.heads == 8) c.head_dim = 128;
  CAPTURE(c.window, c.heads, c.head_dim);
  const int row_width = c.heads * c.head_dim;
  std::mt19937_64 random(5);
  TestDevice device;
  const Sequence prompts[] = {{200, 200, 1}, {70, 70, 2}, {64, 64, 3}};
  std::vector<std::vector<float>> whole;
  for (const Sequence& prompt : prompts) whole.push_back(Alone(device, c, prompt));
  for (int round = 0; round < 4; ++round) {
    c.sequences.clear();
    for (const Sequence& prompt : prompts) {
      const int end = kFewRows + 1 + static_cast<int>(random() % (prompt.context - kFewRows));
      const int rows = round % 2 == 0 ? kFewRows + 1 + static_cast<int>(random() % (end - kFewRows))
                                      : 1 + static_cast<int>(random() % kFewRows);
      c.sequences.push_back({rows, end, prompt.seed});
      c.sequences.push_back({0, 30, 9});
    }
    std::shuffle(c.sequences.begin(), c.sequences.end(), random);
    const std::vector<float> actual = Attend(device, c, random());
    auto row = actual.begin();
    for (const Sequence& s : c.sequences) {
      CAPTURE(round, s.seed, s.rows, s.context);
      // Chunks of a prompt have the bits of the whole prompt, few rows those of single ones.
      std::vector<float> expected;
      if (s.rows > kFewRows) {
        const auto from = whole[s.seed - 1].begin() + (s.context - s.rows) * row_width;
        expected.assign(from, from + s.rows * row_width);
      }
      for (int i = 0; s.rows <= kFewRows && i < s.rows; ++i) {
        const auto single = Alone(device, c, {1, s.context - s.rows + 1 + i, s.seed});
        expected.insert(expected.end(), single.begin(), single.end());
      }
      REQUIRE(std::equal(row, row + s.rows * row_width, expected.begin()));
      row += s.rows * row_width;
    }
  }
}

TEST_CASE("few rows at the end of splits have the bits of single rows, among many sequences too") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  Case c = {.sequences = {}, .heads = 4, .f32 = true, .f32_out = true};
  c.window = GENERATE(0, 300);
  CAPTURE(c.window);
  const std::vector<Sequence> few = {
      {4, 2 * kSplitKeys + 1, 1}, {kFewRows, kLongContext + 3, 2}, {3, 70, 3}};
  TestDevice device;
  std::vector<float> singles;
  for (const Sequence& s : few) {
    for (int i = 0; i < s.rows; ++i) {
      const auto single = Alone(device, c, {1, s.context - s.rows + 1 + i, s.seed});
      singles.insert(singles.end(), single.begin(), single.end());
    }
  }
  c.sequences = few;
  CHECK(Attend(device, c) == singles);
  c.sequences.resize(80, {0, 0, 9});  // then a block computes several splits
  CHECK(Attend(device, c) == singles);
}

TEST_CASE("nothing to attend") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  CHECK(AttendInEverySchedule({.sequences = {{0, 10, 1}, {0, 0, 2}}}).empty());
}

}  // namespace
}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
