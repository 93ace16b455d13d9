// Causal attention over paged keys and values, for any arithmetic: the cut into items, the walk
// over tiles of keys, and the folding of partitions.
//
// A Math computes one tile (attention.cc, attention_dot.cc, attention_tiles.h):
//   Cache                   what keys and values are kept as; or, where the cache has codes and
//                           scales (kernels/kv_rows.h), what each tile of it is turned into first
//   PaddedWidth(head_dim)   the head dimension as it computes it, padded with zeros
//   Floats(width)           of scratch that the constructor takes, 64-byte aligned
//   kRowMultiple            keys and values must be a multiple of this many elements apart, with
//                           zeros behind the last dimension
//   kRowGroup               rows are computed in whole groups of this; those behind the last are
//                           zeros, whose results nobody reads
//   MaxItemRows(width)      of an item: a multiple of kMaxQueryRows
//   PutQuery(r, query)      row r of the item, in order; PutNoQuery(r): zeros
//   LookAhead(places, unasked)  the places of this tile and the two to come; where there are fewer,
//                           any. unasked: perhaps nobody looked ahead to this one
//   PutTile(places, count)  a tile's keys and values: those behind `count` are valid memory, but no
//                           key; of values the odd one of the last pair is finite
//   Attend(rows, scale, seen_of, all_seen, scores, state, corrections)
//                           adds the tile to `state`: of the scores scale * q[r] . keys[k] of each
//                           row r those in seen_of(r) = [begin, end) of the tile, all others count
//                           nothing; all_seen: that is the whole tile for every row. Scratch:
//                           scores [kMaxQueryRows][kTileKeys], corrections [kMaxQueryRows]
//   FoldInto(later, rows, sofar)  puts a later partition's `state` on top of others'
//   Finish(rows, sums)      brings sums into the order [row][width], and of the dimensions
//   Cap(soft_cap)           optional, before any tile: that of AttentionArgs; a Math without it is
//                           not given calls that have one
// Every (row, key) and (row, dimension) sum has an order of its own that depends on neither the
// rows beside it nor the register blocking: that is the f32 invariance of kernels/ops.h.
#pragma once

#include <utility>

#include "kernels/cpu/simd/attention_plan.h"
#include "kernels/cpu/simd/attention_tile.h"
#include "kernels/cpu/simd/kv_codes.h"
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
  float* copies;  // of runs that cannot be read in place: keys, then values, kTileKeys rows each
  float* scores;  // [rows][kTileKeys]
  float* corrections;
  RowState partition;
  RowState whole;

  static int64_t Floats(int64_t width, int64_t math_floats, int64_t max_rows) {
    return math_floats + 2 * kTileKeys * width + 2 * max_rows * (width + 2) +
           kMaxQueryRows * kTileKeys + kMaxQueryRows;
  }
  static Scratch At(float* base, int64_t width, int64_t math_floats, int64_t max_rows) {
    Scratch s;
    float* next = base;
    const auto take = [&next](int64_t floats) {
      float* begin = next;
      next += floats;
      return begin;
    };
    s.math = take(math_floats);
    s.copies = take(2 * kTileKeys * width);
    s.scores = take(kMaxQueryRows * kTileKeys);
    s.corrections = take(kMaxQueryRows);
    s.partition = {take(max_rows * width), take(max_rows), take(max_rows)};
    s.whole = {take(max_rows * width), take(max_rows), take(max_rows)};
    return s;
  }
};

// The workspace of a call: items, then shared partitions, then scratch of each member.
struct Layout {
  int64_t width, item_rows, math_floats;
  int64_t shared_offset, scratch_offset, scratch_bytes, total_bytes, max_shared;

  template <typename Math>
  static Layout Of(const AttentionShape& shape, int threads) {
    constexpr int64_t kFloat = sizeof(float);
    const Cut cut = Cut::Of(shape.heads, shape.kv_heads);
    Layout layout;
    layout.width = Math::PaddedWidth(shape.head_dim);
    layout.item_rows = Math::MaxItemRows(layout.width);
    layout.math_floats = Math::Floats(layout.width);
    layout.max_shared = MaxSharedPartitions(shape, threads);
    layout.shared_offset = RoundUp(cut.MaxItems(shape) * static_cast<int64_t>(sizeof(Item)), 64);
    layout.scratch_offset =
        layout.shared_offset + layout.max_shared * SharedFloats(layout.width) * kFloat;
    const int64_t floats = Scratch::Floats(layout.width, layout.math_floats, layout.item_rows);
    layout.scratch_bytes = RoundUp(floats * kFloat, 64);
    layout.total_bytes = layout.scratch_offset + threads * layout.scratch_bytes;
    return layout;
  }
};

inline void Reset(const RowState& state, int64_t rows, int64_t width) {
  for (int64_t i = 0; i < rows * width; i += kLanes) Store(state.sums + i, Zero());
  for (int64_t r = 0; r < rows; ++r) {
    state.maxima[r] = -__builtin_inff();
    state.totals[r] = 0;
  }
}

// Where the keys and values of a tile stand: those of a run one after another, `stride` elements
// apart.
template <typename C>
struct TilePlaces {
  const C* keys[kTileRuns];
  const C* values[kTileRuns];
};

// What of a sequence's keys and values an item sees. C: what they are kept as; of a cache of codes
// places are those of its rows.
template <typename C>
class ItemContext {
 public:
  ItemContext(const AttentionArgs& args, const Item& item)
      : cache_(args.cache),
        kv_head_(item.kv_head),
        element_bytes_(HasKvScales(args.cache.keys.dtype) ? 1 : sizeof(C)),
        row_elements_(args.cache.keys.shape[3]),
        block_tokens_(args.cache.keys.shape[2]),
        table_(args.block_tables.Row<int32_t>(item.sequence)),
        begin_(FirstKeySeen(args, item.first_position)),
        end_(item.first_position + item.tokens) {}

  // Keys that any row sees.
  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  // The first tile of a partition that any row sees.
  int64_t FirstTile(int64_t partition) const {
    return Larger(partition * kPartitionKeys, begin_ / kTileKeys * kTileKeys);
  }

  const C* Key(int64_t position) const { return RowOf(cache_.keys, position); }
  const C* Value(int64_t position) const { return RowOf(cache_.values, position); }

  // The nearest position that is inside the context.
  int64_t Inside(int64_t position) const { return Smaller(Larger(position, begin_), end_ - 1); }

  // Blocks that lie outside the context may be gone: runs there are given a neighbour's place.
  TilePlaces<C> Locate(int64_t tile) const {
    TilePlaces<C> places;
    for (int64_t run = 0; run < kTileRuns; ++run) {
      const int64_t position = Inside(tile + run * kRunKeys) / kRunKeys * kRunKeys;
      places.keys[run] = Key(position);
      places.values[run] = Value(position);
    }
    return places;
  }

 private:
  const C* RowOf(const TensorView& cache, int64_t position) const {
    // 32 bits: a division of 64 bits takes longer than the read that needs it.
    const auto at = static_cast<uint32_t>(position), tokens = static_cast<uint32_t>(block_tokens_);
    const int64_t slot = table_[at / tokens] * block_tokens_ + at % tokens;
    const int64_t element = kv_head_ * cache.row_stride + slot * row_elements_;
    return reinterpret_cast<const C*>(cache.data + element * element_bytes_);
  }

  const KvCacheView& cache_;
  const int64_t kv_head_, element_bytes_, row_elements_, block_tokens_;
  const int32_t* const table_;
  const int64_t begin_, end_;
};

// Partitions [begin, end) of an item: what a task does.
struct TaskPart {
  const Item* item;
  int64_t begin, end;

  static TaskPart Of(const Plan& plan, int64_t task) {
    const Item& item = ItemOf(plan, task);
    if (item.shared_slot < 0) return {&item, item.begin_partition, item.end_partition};
    const int64_t begin =
        item.begin_partition + (task - item.first_task) * plan.partitions_per_task;
    return {&item, begin, Smaller(begin + plan.partitions_per_task, item.end_partition)};
  }
};

// One item of a call, with the scratch of the member that works on it. T: activations.
template <typename T, typename Math>
class ItemRun {
 public:
  using C = typename Math::Cache;

  // last_partition: of those that will be run. next: probably what the member does after them, or
  // null.
  ItemRun(const AttentionArgs& args, const Item& item, const Scratch& scratch,
          int64_t last_partition, const TaskPart* next)
      : args_(args),
        item_(item),
        scratch_(scratch),
        head_dim_(args.q.shape[2]),
        width_(Math::PaddedWidth(head_dim_)),
        rows_(static_cast<int64_t>(item.heads) * item.tokens),
        padded_rows_(RoundUp(rows_, Math::kRowGroup)),
        context_(args, item),
        last_key_(Smaller((last_partition + 1) * kPartitionKeys, context_.end()) - 1),
        next_(next),
        stride_(RoundUp(head_dim_, Math::kRowMultiple)),
        has_codes_(HasKvScales(args.cache.keys.dtype)),
        in_place_(!has_codes_ && stride_ == head_dim_ && args.cache.keys.shape[2] % kRunKeys == 0),
        math_(scratch.math, head_dim_, stride_) {
    if constexpr (requires { math_.Cap(args.soft_cap); }) math_.Cap(args.soft_cap);
  }

  void LoadQueries() {
    for (int64_t r = 0; r < rows_; ++r) {
      math_.PutQuery(r, args_.q.Row<const T>(item_.first_row + r / item_.heads) +
                            (item_.first_head + r % item_.heads) * head_dim_);
    }
    for (int64_t r = rows_; r < padded_rows_; ++r) math_.PutNoQuery(r);
  }

  void Clear(const RowState& state) const { Reset(state, padded_rows_, width_); }

  // One partition into `state`.
  void RunPartition(int64_t partition, const RowState& state) {
    Clear(state);
    const int64_t last = Smaller((partition + 1) * kPartitionKeys, context_.end());
    for (int64_t tile = context_.FirstTile(partition); tile < last; tile += kTileKeys) {
      RunTile(tile, state);
    }
  }

  void FoldInto(const RowState& partition, const RowState& whole) const {
    math_.FoldInto(partition, rows_, whole);
  }

  void StoreRows(const RowState& whole) {
    math_.Finish(rows_, whole.sums);
    for (int64_t r = 0; r < rows_; ++r) {
      T* out = args_.out.Row<T>(item_.first_row + r / item_.heads) +
               (item_.first_head + r % item_.heads) * head_dim_;
      const float* sums = whole.sums + r * width_;
      const Vec total = Set(TotalOf(whole, r));
      ForVectors(head_dim_,
                 [&](int64_t d, int64_t n) { StoreUpTo(out + d, Div(Load(sums + d), total), n); });
    }
  }

  int64_t width() const { return width_; }

 private:
  // What a row's sums are divided by: its weights, and that of its head's sink beside them.
  float TotalOf(const RowState& whole, int64_t r) const {
    const float total = whole.totals[r] > 0 ? whole.totals[r] : 1.0f;
    if (args_.sinks.empty()) return total;
    const float sink = args_.sinks.As<float>()[item_.first_head + r % item_.heads];
    alignas(64) float weight[kLanes];
    Store(weight, Exp(Set(sink - whole.maxima[r])));
    return total + weight[0];
  }

  // Places of a tile of this item, or what follows its last one.
  TilePlaces<C> Locate(int64_t tile) const {
    if (tile <= last_key_ || next_ == nullptr) return context_.Locate(tile);
    const ItemContext<C> next(args_, *next_->item);
    const int64_t beyond = tile - (last_key_ / kTileKeys + 1) * kTileKeys;
    return next.Locate(next.FirstTile(next_->begin) + beyond);
  }

  // The run at `position`, with neighbours where the context has no keys.
  template <typename RowAt>
  const C* Copy(int64_t position, const RowAt& row_at, C* copy) const {
    for (int64_t i = 0; i < kRunKeys; ++i) {
      C* row = copy + i * stride_;
      const C* from = row_at(context_.Inside(position + i));
      if (has_codes_) {
        ReadRow(reinterpret_cast<const std::byte*>(from), head_dim_, args_.cache.keys.dtype, row);
      } else {
        __builtin_memcpy(row, from, head_dim_ * sizeof(C));
      }
      for (int64_t d = head_dim_; d < stride_; ++d) row[d] = C{};
    }
    return copy;
  }

  // Makes every run of the tile one that a Math can read.
  void Complete(int64_t tile, TilePlaces<C>& places) const {
    auto* keys = reinterpret_cast<C*>(scratch_.copies);
    C* const values = keys + kTileKeys * stride_;
    for (int64_t run = 0; run < kTileRuns; ++run) {
      const int64_t position = tile + run * kRunKeys, offset = run * kRunKeys * stride_;
      if (position >= context_.end()) {
        if (!has_codes_) return;
        places.keys[run] = keys;  // rows of codes are too short to be read
        places.values[run] = values;
        continue;
      }
      const bool whole = position >= context_.begin() && position + kRunKeys <= context_.end();
      if (!in_place_) {
        places.keys[run] = Copy(
            position, [this](int64_t at) { return context_.Key(at); }, keys + offset);
      }
      // Whatever is no value must not be multiplied, not even with 0.
      if (!in_place_ || !whole) {
        places.values[run] = Copy(
            position, [this](int64_t at) { return context_.Value(at); }, values + offset);
      }
    }
  }

  // Finds the tiles to come while this one is computed; returns whether nobody looked ahead to it.
  bool Advance(int64_t tile) {
    const bool first = tile != next_tile_;
    if (first) {
      places_[0] = Locate(tile);
      places_[1] = Locate(tile + kTileKeys);
    } else {
      places_[0] = places_[1];
      places_[1] = places_[2];
    }
    places_[2] = Locate(tile + 2 * kTileKeys);
    next_tile_ = tile + kTileKeys;
    return first;
  }

  void RunTile(int64_t tile, const RowState& state) {
    const bool unasked = Advance(tile);
    math_.LookAhead(places_, unasked);
    TilePlaces<C> places = places_[0];
    Complete(tile, places);
    const int64_t count = Smaller(kTileKeys, context_.end() - tile);
    const auto seen_of = [this, tile](int64_t row) {
      const int64_t position = item_.first_position + row / item_.heads;
      return std::pair{Larger(0, FirstKeySeen(args_, position) - tile), position + 1 - tile};
    };
    const int64_t last_position = item_.first_position + item_.tokens - 1;
    const bool all_seen =
        item_.first_position + 1 >= tile + kTileKeys && FirstKeySeen(args_, last_position) <= tile;
    math_.PutTile(places, count);
    math_.Attend(rows_, args_.scale, seen_of, all_seen, scratch_.scores, state,
                 scratch_.corrections);
  }

  const AttentionArgs& args_;
  const Item& item_;
  const Scratch& scratch_;
  const int64_t head_dim_, width_;
  const int64_t rows_, padded_rows_;
  const ItemContext<C> context_;
  const int64_t last_key_;  // of the last partition that will be run
  const TaskPart* const next_;
  const int64_t stride_;  // of a run's keys and values
  const bool has_codes_;
  const bool in_place_;  // whole runs are read where the cache has them
  Math math_;
  int64_t next_tile_ = -1;
  TilePlaces<C> places_[3];  // of this tile and the two to come
};

inline RowState SharedState(float* shared, int64_t slot, int64_t width) {
  float* base = shared + slot * SharedFloats(width);
  float* maxima = base + kMaxQueryRows * width;
  return {base, maxima, maxima + kMaxQueryRows};
}

template <typename T, typename Math>
void RunTask(const AttentionArgs& args, const Plan& plan, int64_t task, int threads, float* shared,
             const Scratch& scratch) {
  const TaskPart part = TaskPart::Of(plan, task);
  TaskPart next;
  const bool any_next = task + threads < plan.task_count;
  if (any_next) next = TaskPart::Of(plan, task + threads);
  const Item& item = *part.item;
  ItemRun<T, Math> run(args, item, scratch, part.end - 1, any_next ? &next : nullptr);
  run.LoadQueries();
  if (item.shared_slot < 0) {
    // As if the first were folded into nothing.
    run.RunPartition(part.begin, scratch.whole);
    for (int64_t p = part.begin + 1; p < part.end; ++p) {
      run.RunPartition(p, scratch.partition);
      run.FoldInto(scratch.partition, scratch.whole);
    }
    run.StoreRows(scratch.whole);
    return;
  }
  for (int64_t p = part.begin; p < part.end; ++p) {
    run.RunPartition(p,
                     SharedState(shared, item.shared_slot + p - item.begin_partition, run.width()));
  }
}

// The shared items' partitions, folded in their order.
template <typename T, typename Math>
void FoldShared(const AttentionArgs& args, const Item& item, float* shared,
                const Scratch& scratch) {
  if (item.shared_slot < 0) return;
  ItemRun<T, Math> run(args, item, scratch, item.end_partition - 1, nullptr);
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
      .kv_heads = args.cache.keys.shape[0],
      .head_dim = args.q.shape[2],
      .max_context_tokens = args.block_tables.shape[1] * args.cache.keys.shape[2],
      .activation_dtype = args.q.dtype};
  const Layout layout = Layout::Of<Math>(shape, pool.threads());
  std::byte* base = args.workspace.data;
  auto* shared = reinterpret_cast<float*>(base + layout.shared_offset);
  Plan plan;
  plan.items = reinterpret_cast<Item*>(base);
  ListItems(args, Cut::For(args, layout.item_rows, pool.threads()), plan);
  ShareItems(pool.threads(), layout.max_shared, plan);
  const auto scratch_of = [&](int member) {
    auto* scratch = base + layout.scratch_offset + member * layout.scratch_bytes;
    return Scratch::At(reinterpret_cast<float*>(scratch), layout.width, layout.math_floats,
                       layout.item_rows);
  };
  pool.ParallelFor(plan.task_count, [&](int64_t task, int member) {
    RunTask<T, Math>(args, plan, task, pool.threads(), shared, scratch_of(member));
  });
  if (plan.task_count == plan.item_count) return;
  pool.ParallelFor(plan.item_count, [&](int64_t i, int member) {
    FoldShared<T, Math>(args, plan.items[i], shared, scratch_of(member));
  });
}

}  // namespace
}  // namespace tessera::kernels::TESSERA_SIMD_PATH
