// A batch of sequences over a paged cache, for the attention tests.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "tests/kernels/conformance/path.h"

namespace tessera::kernels::conformance {

struct Sequence {
  int64_t query_rows;      // the last tokens of the context; 0 computes nothing
  int64_t context_length;  // these rows included
  uint64_t seed;           // of its keys, values and queries: the same seed is the same sequence
};

struct AttentionCase {
  std::vector<Sequence> sequences;
  int64_t heads = 4, kv_heads = 2, head_dim = 64, block_tokens = 16, window = 0;
  DType activation = DType::kF32, cache = DType::kF32, products = DType::kF32;
  RowsPerSequence rows_per_sequence = RowsPerSequence::kAny;
  uint64_t layout_seed = 1;  // which blocks of the cache a sequence gets
  int64_t padding = 8;       // elements between the rows of q and out
  int64_t nan_key = -1;      // position whose key is NaN in every sequence; -1: none
  float soft_cap = 0;
  bool sinks = false;    // of each head another
  bool chunked = false;  // windows are chunks
  float key_growth = 0;  // the key at position p is 1 + p * key_growth times as large
  float query_scale = 3, value_scale = 1;  // largest magnitudes
  bool equal_values = false;               // all of them value_scale
};

// A kernel that no path has, run on a CPU path's tensors in place of its own.
struct AttentionKernel {
  int64_t (*workspace_bytes)(const AttentionShape& shape, int threads);
  void (*attend)(const AttentionArgs& args, ThreadPool& pool);
};

// Rows of the sequences one after another, [heads * head_dim] each. Blocks that no row may see hold
// NaN, rows of q are queries of absolute positions, so chunks of one sequence can be compared.
std::vector<float> RunAttention(Path& path, const AttentionCase& attention);
std::vector<float> RunAttention(const AttentionKernel& kernel, ThreadPool& pool,
                                const AttentionCase& attention);

}  // namespace tessera::kernels::conformance
