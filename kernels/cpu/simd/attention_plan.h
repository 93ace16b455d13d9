// How an attention call is cut into tasks. Plain integers, no vectors.
//
// An item is what one pass over a context serves: some tokens of one sequence times the query heads
// of one kv head, so keys and values are read once for all of them. Items have at most
// kMaxQueryRows rows; where an arithmetic gains by more (Math::MaxItemRows of attention_run.h) and
// a call has so many tokens that every thread still finds several items, they have more. A context
// is cut at absolute positions into partitions, each computed on its own and folded in order;
// whether one task does all partitions of an item or several share them changes no bit of the
// result. Long items are shared only where there are too few items to keep every thread busy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {
namespace {

constexpr int64_t kMaxQueryRows = 64;
constexpr int64_t kItemsPerThread = 4;  // that larger items must leave
constexpr int64_t kTileKeys = 64;
constexpr int64_t kRunKeys = 16;  // of a tile: these follow one another in memory
constexpr int64_t kTileRuns = kTileKeys / kRunKeys;
constexpr int64_t kPartitionKeys = 2048;
constexpr int64_t kMaxSharedBytes = int64_t{32} << 20;  // workspace for shared items' partitions

constexpr int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t Larger(int64_t a, int64_t b) { return a > b ? a : b; }

struct Item {
  int32_t sequence, kv_head;
  int32_t first_head, heads;  // query heads
  int32_t first_row, tokens;  // rows of q
  int32_t first_position;     // of the first token
  int32_t begin_partition, end_partition;
  int32_t first_task;   // of the call
  int32_t shared_slot;  // of the first partition among shared results; -1: one task does all
};

// What the cut depends on besides the lengths.
struct Cut {
  int64_t heads_per_item, head_chunks, tokens_per_item;

  static Cut Of(int64_t heads, int64_t kv_heads, int64_t item_rows = kMaxQueryRows) {
    const int64_t group = heads / kv_heads;
    Cut cut;
    cut.heads_per_item = Smaller(group, kMaxQueryRows);
    cut.head_chunks = CeilDivide(group, cut.heads_per_item);
    cut.tokens_per_item = Larger(1, item_rows / cut.heads_per_item);
    return cut;
  }
  // The cut of a call: the largest items, of up to max_item_rows rows, that are enough for its
  // threads.
  static Cut For(const AttentionArgs& args, int64_t max_item_rows, int threads) {
    const int64_t heads = args.q.shape[1], kv_heads = args.cache.keys.shape[0];
    const int32_t* starts = args.query_starts.As<int32_t>();
    for (int64_t rows = max_item_rows; rows > kMaxQueryRows; rows /= 2) {
      const Cut cut = Of(heads, kv_heads, rows);
      int64_t items = 0;
      for (int64_t s = 0; s < args.context_lengths.rows(); ++s) {
        const int64_t chunks = CeilDivide(starts[s + 1] - starts[s], cut.tokens_per_item);
        items += chunks * kv_heads * cut.head_chunks;
      }
      if (items >= kItemsPerThread * threads) return cut;
    }
    return Of(heads, kv_heads);
  }
  int64_t MaxItems(const AttentionShape& shape) const {
    // Each sequence may leave its last item part empty.
    const int64_t token_tiles =
        Smaller(shape.tokens, shape.tokens / tokens_per_item + shape.sequences);
    return token_tiles * shape.kv_heads * head_chunks;
  }
};

// Room for one partition's results of one item of kMaxQueryRows rows: sums [rows][head_dim], then
// maxima and totals.
constexpr int64_t SharedFloats(int64_t head_dim) { return kMaxQueryRows * (head_dim + 2); }

// Partitions that may be kept for shared items; the rest of long items goes to single tasks.
inline int64_t MaxSharedPartitions(const AttentionShape& shape, int threads) {
  if (threads == 1) return 0;
  const int64_t items = Smaller(Cut::Of(shape.heads, shape.kv_heads).MaxItems(shape), 4 * threads);
  const int64_t all = items * (CeilDivide(shape.max_context_tokens, kPartitionKeys) + 1);
  const int64_t bytes = SharedFloats(shape.head_dim) * static_cast<int64_t>(sizeof(float));
  return Smaller(all, Larger(kMaxSharedBytes / bytes, 1));
}

struct Plan {
  Item* items;
  int64_t item_count = 0;
  int64_t task_count = 0;
  int64_t partitions_per_task = 1;
};

// The first key that the token at a position sees.
inline int64_t FirstKeySeen(const AttentionArgs& args, int64_t position) {
  if (args.window == 0) return 0;
  if (args.chunked) return position - position % args.window;
  return Larger(0, position + 1 - args.window);
}

// Lists the items of a call into `plan.items` (room for Cut::MaxItems).
inline void ListItems(const AttentionArgs& args, const Cut& cut, Plan& plan) {
  const int32_t* starts = args.query_starts.As<int32_t>();
  const int64_t kv_heads = args.cache.keys.shape[0];
  const int64_t group = args.q.shape[1] / kv_heads;
  for (int64_t s = 0; s < args.context_lengths.rows(); ++s) {
    const int64_t rows = starts[s + 1] - starts[s];
    const int64_t first_position = args.context_lengths.As<int32_t>()[s] - rows;
    for (int64_t token = 0; token < rows; token += cut.tokens_per_item) {
      const int64_t tokens = Smaller(cut.tokens_per_item, rows - token);
      const int64_t position = first_position + token;
      const int64_t end = Larger(position + tokens, 0);
      const int64_t begin = FirstKeySeen(args, position);
      for (int64_t unit = 0; unit < kv_heads * cut.head_chunks; ++unit) {
        const int64_t kv_head = unit / cut.head_chunks;
        const int64_t first = unit % cut.head_chunks * cut.heads_per_item;
        plan.items[plan.item_count++] = {
            .sequence = static_cast<int32_t>(s),
            .kv_head = static_cast<int32_t>(kv_head),
            .first_head = static_cast<int32_t>(kv_head * group + first),
            .heads = static_cast<int32_t>(Smaller(cut.heads_per_item, group - first)),
            .first_row = static_cast<int32_t>(starts[s] + token),
            .tokens = static_cast<int32_t>(tokens),
            .first_position = static_cast<int32_t>(position),
            .begin_partition = static_cast<int32_t>(begin / kPartitionKeys),
            .end_partition = static_cast<int32_t>(CeilDivide(end, kPartitionKeys)),
            .first_task = 0,
            .shared_slot = -1};
      }
    }
  }
}

// Decides which items are shared between tasks and numbers the tasks: two a thread, as each may
// start on keys that nobody asked for in time.
inline void ShareItems(int threads, int64_t max_shared, Plan& plan) {
  int64_t total = 0;
  for (int64_t i = 0; i < plan.item_count; ++i) {
    total += plan.items[i].end_partition - plan.items[i].begin_partition;
  }
  plan.partitions_per_task = Larger(1, CeilDivide(total, 2 * threads));
  int64_t shared = 0;
  for (int64_t i = 0; i < plan.item_count; ++i) {
    Item& item = plan.items[i];
    const int64_t partitions = item.end_partition - item.begin_partition;
    item.first_task = static_cast<int32_t>(plan.task_count);
    const bool share = partitions > plan.partitions_per_task && shared + partitions <= max_shared &&
                       item.heads * item.tokens <= kMaxQueryRows;
    if (share) {
      item.shared_slot = static_cast<int32_t>(shared);
      shared += partitions;
      plan.task_count += CeilDivide(partitions, plan.partitions_per_task);
    } else {
      plan.task_count += 1;
    }
  }
}

// The item that `task` belongs to.
inline const Item& ItemOf(const Plan& plan, int64_t task) {
  int64_t low = 0, high = plan.item_count;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (plan.items[middle].first_task <= task ? low : high) = middle;
  }
  return plan.items[low];
}

}  // namespace
}  // namespace tessera::kernels::TESSERA_SIMD_PATH
