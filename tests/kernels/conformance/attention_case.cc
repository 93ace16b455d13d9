#include "tests/kernels/conformance/attention_case.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace tessera::kernels::conformance {
namespace {

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// What stands at one position of a sequence, whatever the batch.
std::vector<float> TokenValues(const Sequence& sequence, int64_t position, int64_t count,
                               int64_t which) {
  return RandomFloats(count, sequence.seed * 1000003 + position * 3 + which);
}

struct Pages {
  int64_t blocks = 0, table_width = 0;
  std::vector<int32_t> tables;  // [sequences][table_width]; -1 beyond a context
};

Pages LayOut(const AttentionCase& c) {
  Pages pages;
  int64_t used = 0;
  for (const Sequence& s : c.sequences) {
    const int64_t blocks = CeilDivide(s.context_length, c.block_tokens);
    used += blocks;
    pages.table_width = std::max(pages.table_width, blocks);
  }
  pages.table_width = std::max<int64_t>(pages.table_width, 1);
  pages.blocks = used + 3;
  std::vector<int32_t> order(pages.blocks);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(c.layout_seed));
  pages.tables.assign(c.sequences.size() * pages.table_width, -1);
  size_t next = 0;
  for (size_t s = 0; s < c.sequences.size(); ++s) {
    const int64_t blocks = CeilDivide(c.sequences[s].context_length, c.block_tokens);
    for (int64_t b = 0; b < blocks; ++b) pages.tables[s * pages.table_width + b] = order[next++];
  }
  return pages;
}

// Keys (which 0) or values (which 1) of every sequence in their blocks, NaN everywhere else.
std::vector<float> FillCache(const AttentionCase& c, const Pages& pages, int64_t which) {
  const int64_t head_elements = pages.blocks * c.block_tokens * c.head_dim;
  std::vector<float> cache(c.kv_heads * head_elements, std::numeric_limits<float>::quiet_NaN());
  for (size_t s = 0; s < c.sequences.size(); ++s) {
    const Sequence& sequence = c.sequences[s];
    const int64_t first_row = sequence.context_length - sequence.query_rows;
    const int64_t seen = c.window == 0 ? 0
                         : c.chunked   ? first_row - first_row % c.window
                                       : std::max<int64_t>(0, first_row + 1 - c.window);
    for (int64_t p = seen; p < sequence.context_length; ++p) {
      std::vector<float> token = TokenValues(sequence, p, c.kv_heads * c.head_dim, which);
      if (which == 0) {
        for (float& value : token) value *= 1 + static_cast<float>(p) * c.key_growth;
      }
      if (which == 1) {
        for (float& value : token) value = c.value_scale * (c.equal_values ? 1 : value);
      }
      if (which == 0 && p == c.nan_key) {
        std::fill(token.begin(), token.end(), std::numeric_limits<float>::quiet_NaN());
      }
      const int64_t block = pages.tables[s * pages.table_width + p / c.block_tokens];
      for (int64_t h = 0; h < c.kv_heads; ++h) {
        const int64_t offset = (block * c.block_tokens + p % c.block_tokens) * c.head_dim;
        std::copy_n(token.begin() + h * c.head_dim, c.head_dim,
                    cache.begin() + h * head_elements + offset);
      }
    }
  }
  return cache;
}

// The same as the cache has it: where it has codes and scales, the bytes of its rows.
std::vector<float> AsCached(const AttentionCase& c, const std::vector<float>& values) {
  if (!HasKvScales(c.cache)) return values;
  const int64_t row_bytes = KvRowElements(c.cache, c.head_dim);
  const int64_t rows = static_cast<int64_t>(values.size()) / c.head_dim;
  std::vector<std::byte> row(row_bytes);
  std::vector<float> bytes;
  for (int64_t i = 0; i < rows; ++i) {
    WriteKvRow(values.data() + i * c.head_dim, c.head_dim, c.cache, row.data());
    for (const std::byte byte : row) bytes.push_back(std::to_integer<uint8_t>(byte));
  }
  return bytes;
}

std::vector<float> Queries(const AttentionCase& c) {
  std::vector<float> queries;
  for (const Sequence& s : c.sequences) {
    for (int64_t p = s.context_length - s.query_rows; p < s.context_length; ++p) {
      std::vector<float> row = TokenValues(s, p, c.heads * c.head_dim, 2);
      for (float& value : row) value *= c.query_scale;
      queries.insert(queries.end(), row.begin(), row.end());
    }
  }
  return queries;
}

}  // namespace

// attend(args, shape) runs an attention whose arguments lack nothing but the workspace.
template <typename Attend>
std::vector<float> RunCase(Path& path, const AttentionCase& c, const Attend& attend) {
  const Pages pages = LayOut(c);
  const auto sequences = static_cast<int64_t>(c.sequences.size());
  std::vector<int32_t> starts = {0}, lengths;
  for (const Sequence& s : c.sequences) {
    starts.push_back(starts.back() + static_cast<int32_t>(s.query_rows));
    lengths.push_back(static_cast<int32_t>(s.context_length));
  }
  const int64_t tokens = starts.back();
  const std::vector<int64_t> cache_shape = {c.kv_heads, pages.blocks, c.block_tokens,
                                            KvRowElements(c.cache, c.head_dim)};
  // Bytes that keep 16-bit elements and codes aligned.
  const int64_t cache_padding = HasKvScales(c.cache) ? 2 * c.padding : c.padding;
  const Tensor keys(path, c.cache, cache_shape, AsCached(c, FillCache(c, pages, 0)), cache_padding);
  const Tensor values(path, c.cache, cache_shape, AsCached(c, FillCache(c, pages, 1)));
  const Tensor q(path, c.activation, {tokens, c.heads, c.head_dim}, Queries(c), c.padding);
  const Tensor out = Zeros(path, c.activation, {tokens, c.heads, c.head_dim}, c.padding);
  const Tensor starts_tensor(path, {sequences + 1}, starts);
  const Tensor lengths_tensor(path, {sequences}, lengths);
  const Tensor tables(path, {sequences, pages.table_width}, pages.tables);

  AttentionArgs args = {.out = out,
                        .q = q,
                        .cache = {.keys = keys, .values = values},
                        .query_starts = starts_tensor,
                        .context_lengths = lengths_tensor,
                        .block_tables = tables,
                        .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
                        .window = c.window,
                        .chunked = c.chunked,
                        .soft_cap = c.soft_cap};
  // About as large as scores.
  std::vector<float> sink_values = RandomFloats(c.heads, 77);
  for (float& sink : sink_values) sink *= 3;
  const Tensor sinks(path, DType::kF32, {c.heads}, sink_values);
  if (c.sinks) args.sinks = sinks;
  args.products = c.products;
  args.rows_per_sequence = c.rows_per_sequence;
  attend(args, AttentionShape{.tokens = tokens,
                              .sequences = sequences,
                              .heads = c.heads,
                              .kv_heads = c.kv_heads,
                              .head_dim = c.head_dim,
                              .max_context_tokens = pages.table_width * c.block_tokens,
                              .activation_dtype = c.activation});
  CHECK(out.PaddingIntact());
  return out.Read();
}

std::vector<float> RunAttention(Path& path, const AttentionCase& c) {
  return RunCase(path, c, [&path](AttentionArgs& args, const AttentionShape& shape) {
    args.workspace = path.Workspace(path.ops().AttentionWorkspaceBytes(shape));
    const absl::Status status = path.ops().Attention(args, path.stream());
    INFO(status.message());
    REQUIRE(status.ok());
  });
}

std::vector<float> RunAttention(const AttentionKernel& kernel, ThreadPool& pool,
                                const AttentionCase& c) {
  Path& path = Reference();
  return RunCase(path, c, [&](AttentionArgs& args, const AttentionShape& shape) {
    args.workspace = path.Workspace(kernel.workspace_bytes(shape, pool.threads()));
    kernel.attend(args, pool);
  });
}

}  // namespace tessera::kernels::conformance
