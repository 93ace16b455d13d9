// Causal attention over paged keys and values, for any arithmetic: the cut into items, the walk
// over tiles of keys, and the folding of partitions.
//
// A Math computes one tile (attention.cc, attention_dot.cc):
//   Cache                   what keys and values are kept as
//   PaddedWidth(head_dim)   the head dimension as it computes it, padded with zeros
//   Floats(width)           of scratch that the constructor takes, 64-byte aligned
//   kRowGroup               rows are computed in whole groups of this; those behind the last are
//                           zeros, whose results nobody reads
//   PutQuery(r, query)      row r of the item; PutNoQuery(r): zeros
//   PutKeys, PutValues      kTileKeys pointers to head_dim elements; those behind `count` are valid
//                           memory, but no key
//   kRowsTogether           rows whose scores are wanted before any of them goes through Softmax
//   LookAhead               keys and values of the tile to come; of this one where there is none
//   Scores                  scale * q[first + i] . keys[k], kTileKeys scores to a row, in an order
//                           of its own
//   Softmax                 of the scores of each row r in seen_of(r) = [begin, end) of the tile,
//                           all others count nothing; moves maxima and totals, and sets the
//                           corrections with which the sums so far must be multiplied
//   Weigh                   sums[r][d] = sums[r][d] * corrections[r] + weighted values
//   Finish(row)             brings a row of sums into the order of the dimensions
// Every (row, key) and (row, dimension) sum has an order of its own that depends on neither the
// rows beside it nor the register blocking: that is the f32 invariance of kernels/ops.h.
#pragma once

#include <utility>

#include "kernels/cpu/simd/attention_plan.h"
#include "kernels/cpu/simd/attention_tile.h"
#include "kernels/cpu/simd/row_tasks.h"
#include "kernels/cpu/simd/vector.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {
namespace {

constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return CeilDivide(value, multiple) * multiple;
}

// One member's scratch, in floats.
struct Scratch {
  float* math;
  float* scores;  // [rows][kTileKeys]
  float* corrections;
  RowState partition;
  RowState whole;

  static int64_t Floats(int64_t width, int64_t math_floats) {
    return math_floats + 2 * kMaxQueryRows * width + kMaxQueryRows * kTileKeys + 5 * kMaxQueryRows;
  }
  static Scratch At(float* base, int64_t width, int64_t math_floats) {
    Scratch s;
    float* next = base;
    const auto take = [&next](int64_t floats) {
      float* begin = next;
      next += floats;
      return begin;
    };
    s.math = take(math_floats);
    s.scores = take(kMaxQueryRows * kTileKeys);
    s.corrections = take(kMaxQueryRows);
    s.partition = {take(kMaxQueryRows * width), take(kMaxQueryRows), take(kMaxQueryRows)};
    s.whole = {take(kMaxQueryRows * width), take(kMaxQueryRows), take(kMaxQueryRows)};
    return s;
  }
};

// The workspace of a call: items, then shared partitions, then scratch of each member.
struct Layout {
  int64_t width, math_floats;
  int64_t shared_offset, scratch_offset, scratch_bytes, total_bytes, max_shared;

  template <typename Math>
  static Layout Of(const AttentionShape& shape, int threads) {
    constexpr int64_t kFloat = sizeof(float);
    const Cut cut = Cut::Of(shape.heads, shape.kv_heads);
    Layout layout;
    layout.width = Math::PaddedWidth(shape.head_dim);
    layout.math_floats = Math::Floats(layout.width);
    layout.max_shared = MaxSharedPartitions(shape, threads);
    layout.shared_offset = RoundUp(cut.MaxItems(shape) * static_cast<int64_t>(sizeof(Item)), 64);
    layout.scratch_offset =
        layout.shared_offset + layout.max_shared * SharedFloats(layout.width) * kFloat;
    layout.scratch_bytes = RoundUp(Scratch::Floats(layout.width, layout.math_floats) * kFloat, 64);
    layout.total_bytes = layout.scratch_offset + threads * layout.scratch_bytes;
    return layout;
  }
};

// `padded_rows`: those whose maxima and totals are computed, if only in passing.
inline void Reset(const RowState& state, int64_t rows, int64_t padded_rows, int64_t width) {
  for (int64_t i = 0; i < rows * width; i += kLanes) Store(state.sums + i, Zero());
  for (int64_t r = 0; r < padded_rows; ++r) {
    state.maxima[r] = -__builtin_inff();
    state.totals[r] = 0;
  }
}

// Where the keys and values of a tile stand in the cache.
template <typename C>
struct TilePlaces {
  int64_t tile = -1;  // the first key's position; -1: none
  const C* keys[kTileKeys];
  const C* values[kTileKeys];
};

// One item of a call, with the scratch of the member that works on it. T: activations.
template <typename T, typename Math>
class ItemRun {
 public:
  using C = typename Math::Cache;

  ItemRun(const AttentionArgs& args, const Item& item, const Scratch& scratch)
      : args_(args),
        item_(item),
        scratch_(scratch),
        head_dim_(args.q.shape[2]),
        width_(Math::PaddedWidth(head_dim_)),
        block_tokens_(args.cache.keys.shape[2]),
        table_(args.block_tables.Row<int32_t>(item.sequence)),
        rows_(static_cast<int64_t>(item.heads) * item.tokens),
        padded_rows_(RoundUp(rows_, Math::kRowGroup)),
        begin_(args.window == 0 ? 0 : Larger(0, item.first_position + 1 - args.window)),
        end_(item.first_position + item.tokens),
        math_(scratch.math, head_dim_) {}

  void LoadQueries() {
    for (int64_t r = 0; r < rows_; ++r) {
      math_.PutQuery(r, args_.q.Row<const T>(item_.first_row + r / item_.heads) +
                            (item_.first_head + r % item_.heads) * head_dim_);
    }
    for (int64_t r = rows_; r < padded_rows_; ++r) math_.PutNoQuery(r);
  }

  void Clear(const RowState& state) const { Reset(state, rows_, padded_rows_, width_); }

  // One partition into `state`.
  void RunPartition(int64_t partition, const RowState& state) {
    Clear(state);
    const int64_t first = partition * kPartitionKeys;
    const int64_t last = Smaller(first + kPartitionKeys, end_);
    const int64_t skipped = begin_ / kTileKeys * kTileKeys;  // tiles before the window
    for (int64_t tile = Larger(first, skipped); tile < last; tile += kTileKeys) {
      RunTile(tile, state);
    }
  }

  void FoldInto(const RowState& partition, const RowState& whole) const {
    Fold(partition, rows_, width_, whole);
  }

  void StoreRows(const RowState& whole) {
    for (int64_t r = 0; r < rows_; ++r) {
      T* out = args_.out.Row<T>(item_.first_row + r / item_.heads) +
               (item_.first_head + r % item_.heads) * head_dim_;
      float* sums = whole.sums + r * width_;
      math_.Finish(sums);
      const Vec total = Set(whole.totals[r] > 0 ? whole.totals[r] : 1.0f);
      ForVectors(head_dim_,
                 [&](int64_t d, int64_t n) { StoreUpTo(out + d, Div(Load(sums + d), total), n); });
    }
  }

  int64_t width() const { return width_; }

 private:
  int64_t KeysOf(int64_t tile) const { return Smaller(kTileKeys, end_ - tile); }

  // Positions outside the context count nothing; they are given a neighbour that is inside.
  void Locate(int64_t tile, TilePlaces<C>& places) const {
    places.tile = tile;
    const int64_t first = Larger(tile, begin_), count = KeysOf(tile), end = tile + count;
    for (int64_t position = first; position < end;) {
      const int64_t block = position / block_tokens_, offset = position % block_tokens_;
      const int64_t run = Smaller(block_tokens_ - offset, end - position);
      const int64_t element = (item_.kv_head * block_tokens_ + offset) * head_dim_;
      const C* key = args_.cache.keys.Row<const C>(table_[block]) + element;
      const C* value = args_.cache.values.Row<const C>(table_[block]) + element;
      for (int64_t i = 0; i < run; ++i) {
        const int64_t k = position + i - tile;
        places.keys[k] = key + i * head_dim_;
        places.values[k] = value + i * head_dim_;
      }
      position += run;
    }
    const auto repeat = [&places](int64_t k, int64_t from) {
      places.keys[k] = places.keys[from];
      places.values[k] = places.values[from];
    };
    for (int64_t k = tile; k < first; ++k) repeat(k - tile, first - tile);
    for (int64_t k = count; k < kTileKeys; ++k) repeat(k, count - 1);
  }

  void RunTile(int64_t tile, const RowState& state) {
    TilePlaces<C>& places = places_[tile / kTileKeys % 2];
    TilePlaces<C>& next = places_[(tile / kTileKeys + 1) % 2];
    const int64_t count = KeysOf(tile);
    if (places.tile != tile) Locate(tile, places);
    next.tile = -1;
    if (Math::kLooksAhead && tile + kTileKeys < end_) Locate(tile + kTileKeys, next);
    const auto seen_of = [this, tile](int64_t row) {
      const int64_t position = item_.first_position + row / item_.heads;
      const int64_t from = args_.window == 0 ? 0 : position + 1 - args_.window;
      return std::pair{Larger(0, from - tile), position + 1 - tile};
    };
    const TilePlaces<C>& ahead = next.tile < 0 ? places : next;
    math_.LookAhead(ahead.keys, ahead.values);
    math_.PutKeys(places.keys, count);
    for (int64_t first = 0; first < rows_; first += Math::kRowsTogether) {
      const int64_t end = Smaller(first + Math::kRowsTogether, rows_);
      math_.Scores(first, end - first, count, args_.scale, scratch_.scores);
      math_.Softmax(first, end - first, scratch_.scores, seen_of, state, scratch_.corrections);
    }
    math_.PutValues(places.values, count);
    math_.Weigh(rows_, count, scratch_.scores, scratch_.corrections, state.sums);
  }

  const AttentionArgs& args_;
  const Item& item_;
  const Scratch& scratch_;
  const int64_t head_dim_, width_, block_tokens_;
  const int32_t* const table_;
  const int64_t rows_, padded_rows_;
  const int64_t begin_, end_;  // keys that any row sees
  Math math_;
  TilePlaces<C> places_[2];  // of this tile and of the next one
};

inline RowState SharedState(float* shared, int64_t slot, int64_t width) {
  float* base = shared + slot * SharedFloats(width);
  float* maxima = base + kMaxQueryRows * width;
  return {base, maxima, maxima + kMaxQueryRows};
}

template <typename T, typename Math>
void RunTask(const AttentionArgs& args, const Plan& plan, int64_t task, float* shared,
             const Scratch& scratch) {
  const Item& item = ItemOf(plan, task);
  ItemRun<T, Math> run(args, item, scratch);
  run.LoadQueries();
  if (item.shared_slot < 0) {
    run.Clear(scratch.whole);
    for (int64_t p = item.begin_partition; p < item.end_partition; ++p) {
      run.RunPartition(p, scratch.partition);
      run.FoldInto(scratch.partition, scratch.whole);
    }
    run.StoreRows(scratch.whole);
    return;
  }
  const int64_t first = (task - item.first_task) * plan.partitions_per_task;
  const int64_t count = item.end_partition - item.begin_partition;
  for (int64_t i = first; i < Smaller(first + plan.partitions_per_task, count); ++i) {
    run.RunPartition(item.begin_partition + i,
                     SharedState(shared, item.shared_slot + i, run.width()));
  }
}

// The shared items' partitions, folded in their order.
template <typename T, typename Math>
void FoldShared(const AttentionArgs& args, const Item& item, float* shared,
                const Scratch& scratch) {
  if (item.shared_slot < 0) return;
  ItemRun<T, Math> run(args, item, scratch);
  run.Clear(scratch.whole);
  for (int64_t i = 0; i < item.end_partition - item.begin_partition; ++i) {
    run.FoldInto(SharedState(shared, item.shared_slot + i, run.width()), scratch.whole);
  }
  run.StoreRows(scratch.whole);
}

// The whole op, with the arithmetic of Math.
template <typename T, typename Math>
void AttendWith(const AttentionArgs& args, ThreadPool& pool) {
  const AttentionShape shape = {
      .tokens = args.q.shape[0],
      .sequences = args.context_lengths.shape[0],
      .heads = args.q.shape[1],
      .kv_heads = args.cache.keys.shape[1],
      .head_dim = args.q.shape[2],
      .max_context_tokens = args.block_tables.shape[1] * args.cache.keys.shape[2],
      .activation_dtype = args.q.dtype};
  const Layout layout = Layout::Of<Math>(shape, pool.threads());
  std::byte* base = args.workspace.data;
  auto* shared = reinterpret_cast<float*>(base + layout.shared_offset);
  Plan plan;
  plan.items = reinterpret_cast<Item*>(base);
  ListItems(args, Cut::Of(shape.heads, shape.kv_heads), plan);
  ShareItems(pool.threads(), layout.max_shared, plan);
  const auto scratch_of = [&](int member) {
    auto* scratch = base + layout.scratch_offset + member * layout.scratch_bytes;
    return Scratch::At(reinterpret_cast<float*>(scratch), layout.width, layout.math_floats);
  };
  pool.ParallelFor(plan.task_count, [&](int64_t task, int member) {
    RunTask<T, Math>(args, plan, task, shared, scratch_of(member));
  });
  if (plan.task_count == plan.item_count) return;
  pool.ParallelFor(plan.item_count, [&](int64_t i, int member) {
    FoldShared<T, Math>(args, plan.items[i], shared, scratch_of(member));
  });
}

}  // namespace
}  // namespace tessera::kernels::TESSERA_SIMD_PATH
