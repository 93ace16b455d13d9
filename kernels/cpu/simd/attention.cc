// Causal attention over paged keys and values for prefill and decode rows in one call.
#include "kernels/cpu/simd/attention_plan.h"
#include "kernels/cpu/simd/attention_tile.h"
#include "kernels/cpu/simd/row_tasks.h"
#include "kernels/cpu/simd/simd_kernels.h"
#include "kernels/cpu/simd/vector.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {
namespace {

constexpr int64_t kAlignFloats = 16;

constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return CeilDivide(value, multiple) * multiple;
}

// Head dimension as the kernels compute it: padded with zeros to whole registers.
constexpr int64_t PaddedWidth(int64_t head_dim) { return RoundUp(head_dim, kAlignFloats); }

// One member's scratch, in floats.
struct Scratch {
  float* q;       // [rows][width]
  float* keys;    // [keys][width], where they cannot be read in place
  float* values;  // same
  float* scores;  // [rows][kTileKeys]
  float* corrections;
  RowState partition;
  RowState whole;

  static int64_t Floats(int64_t width) {
    return 3 * kMaxQueryRows * width + 2 * kTileKeys * width + kMaxQueryRows * kTileKeys +
           5 * kMaxQueryRows;
  }
  static Scratch At(float* base, int64_t width) {
    Scratch s;
    float* next = base;
    const auto take = [&next](int64_t floats) {
      float* begin = next;
      next += floats;
      return begin;
    };
    s.q = take(kMaxQueryRows * width);
    s.keys = take(kTileKeys * width);
    s.values = take(kTileKeys * width);
    s.scores = take(kMaxQueryRows * kTileKeys);
    s.corrections = take(kMaxQueryRows);
    s.partition = {take(kMaxQueryRows * width), take(kMaxQueryRows), take(kMaxQueryRows)};
    s.whole = {take(kMaxQueryRows * width), take(kMaxQueryRows), take(kMaxQueryRows)};
    return s;
  }
};

// The workspace of a call: items, then shared partitions, then scratch of each member.
struct Layout {
  int64_t shared_offset, scratch_offset, scratch_bytes, total_bytes, max_shared;

  static Layout Of(const AttentionShape& shape, int threads) {
    constexpr int64_t kFloat = sizeof(float);
    const int64_t width = PaddedWidth(shape.head_dim);
    const Cut cut = Cut::Of(shape.heads, shape.kv_heads);
    Layout layout;
    layout.max_shared = MaxSharedPartitions(shape, threads);
    layout.shared_offset = RoundUp(cut.MaxItems(shape) * static_cast<int64_t>(sizeof(Item)), 64);
    layout.scratch_offset = layout.shared_offset + layout.max_shared * SharedFloats(width) * kFloat;
    layout.scratch_bytes = RoundUp(Scratch::Floats(width) * kFloat, 64);
    layout.total_bytes = layout.scratch_offset + threads * layout.scratch_bytes;
    return layout;
  }
};

void Reset(const RowState& state, int64_t rows, int64_t width) {
  for (int64_t i = 0; i < rows * width; i += kLanes) Store(state.sums + i, Zero());
  for (int64_t r = 0; r < rows; ++r) {
    state.maxima[r] = -__builtin_inff();
    state.totals[r] = 0;
  }
}

// One item of a call, with the scratch of the member that works on it. T: activations, C: cache.
template <typename T, typename C>
class ItemRun {
 public:
  ItemRun(const AttentionArgs& args, const Item& item, const Scratch& scratch)
      : args_(args),
        item_(item),
        scratch_(scratch),
        head_dim_(args.q.shape[2]),
        width_(PaddedWidth(head_dim_)),
        block_tokens_(args.cache.keys.shape[2]),
        table_(args.block_tables.Row<int32_t>(item.sequence)),
        rows_(static_cast<int64_t>(item.heads) * item.tokens),
        begin_(args.window == 0 ? 0 : Larger(0, item.first_position + 1 - args.window)),
        end_(item.first_position + item.tokens) {}

  void LoadQueries() const {
    for (int64_t r = 0; r < rows_; ++r) {
      const T* in = args_.q.Row<const T>(item_.first_row + r / item_.heads) +
                    (item_.first_head + r % item_.heads) * head_dim_;
      Widen(in, scratch_.q + r * width_);
    }
  }

  // One partition into `state`.
  void RunPartition(int64_t partition, const RowState& state) const {
    Reset(state, rows_, width_);
    const int64_t first = partition * kPartitionKeys;
    const int64_t last = Smaller(first + kPartitionKeys, end_);
    const int64_t skipped = begin_ / kTileKeys * kTileKeys;  // tiles before the window
    for (int64_t tile = Larger(first, skipped); tile < last; tile += kTileKeys) {
      RunTile(tile, Smaller(kTileKeys, last - tile), state);
    }
  }

  void FoldInto(const RowState& partition, const RowState& whole) const {
    Fold(partition, rows_, width_, whole);
  }

  void StoreRows(const RowState& whole) const {
    for (int64_t r = 0; r < rows_; ++r) {
      T* out = args_.out.Row<T>(item_.first_row + r / item_.heads) +
               (item_.first_head + r % item_.heads) * head_dim_;
      const Vec total = Set(whole.totals[r] > 0 ? whole.totals[r] : 1.0f);
      ForVectors(head_dim_, [&](int64_t d, int64_t n) {
        StoreUpTo(out + d, Div(Load(whole.sums + r * width_ + d), total), n);
      });
    }
  }

  int64_t rows() const { return rows_; }
  int64_t width() const { return width_; }

 private:
  // `head_dim_` elements as floats, then zeros up to `width_`.
  template <typename From>
  void Widen(const From* in, float* out) const {
    int64_t d = 0;
    for (; d + kLanes <= head_dim_; d += kLanes) Store(out + d, Load(in + d));
    for (; d < width_; d += kLanes) {
      Store(out + d, d < head_dim_ ? LoadPart(in + d, head_dim_ - d) : Zero());
    }
  }

  // Pointers to the tile's keys (or values) as padded floats: into the cache itself where they
  // stand so. Positions outside the context (masked later) are given a neighbour that is inside.
  void Gather(const TensorView& cache, int64_t tile, int64_t count, float* copies,
              const float** pointers) const {
    const int64_t first = Larger(tile, begin_), end = tile + count;
    for (int64_t position = first; position < end;) {
      const int64_t block = position / block_tokens_, offset = position % block_tokens_;
      const int64_t run = Smaller(block_tokens_ - offset, end - position);
      const C* element =
          cache.Row<const C>(table_[block]) + (item_.kv_head * block_tokens_ + offset) * head_dim_;
      for (int64_t i = 0; i < run; ++i) {
        const int64_t k = position + i - tile;
        pointers[k] = AsFloats(element + i * head_dim_, copies + k * width_);
      }
      position += run;
    }
    for (int64_t k = tile; k < first; ++k) pointers[k - tile] = pointers[first - tile];
    for (int64_t k = count; k < RoundUp(count, 4); ++k) pointers[k] = pointers[count - 1];
  }

  const float* AsFloats(const C* element, float* copy) const {
    if constexpr (sizeof(C) == sizeof(float)) {
      if (width_ == head_dim_) return element;
    }
    Widen(element, copy);
    return copy;
  }

  void RunTile(int64_t tile, int64_t count, const RowState& state) const {
    const float* keys[kTileKeys];
    const float* values[kTileKeys];
    Gather(args_.cache.keys, tile, count, scratch_.keys, keys);
    Scores(scratch_.q, rows_, width_, keys, count, args_.scale, scratch_.scores);
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t position = item_.first_position + r / item_.heads;
      const int64_t seen_from = args_.window == 0 ? 0 : position + 1 - args_.window;
      scratch_.corrections[r] =
          SoftmaxRow(scratch_.scores + r * kTileKeys, Larger(0, seen_from - tile),
                     position + 1 - tile, state.maxima[r], state.totals[r]);
    }
    Gather(args_.cache.values, tile, count, scratch_.values, values);
    Weigh(scratch_.scores, scratch_.corrections, rows_, values, count, width_, state.sums);
  }

  const AttentionArgs& args_;
  const Item& item_;
  const Scratch& scratch_;
  const int64_t head_dim_, width_, block_tokens_;
  const int32_t* const table_;
  const int64_t rows_;
  const int64_t begin_, end_;  // keys that any row sees
};

RowState SharedState(float* shared, int64_t slot, int64_t width) {
  float* base = shared + slot * SharedFloats(width);
  float* maxima = base + kMaxQueryRows * width;
  return {base, maxima, maxima + kMaxQueryRows};
}

template <typename T, typename C>
void RunTask(const AttentionArgs& args, const Plan& plan, int64_t task, float* shared,
             const Scratch& scratch) {
  const Item& item = ItemOf(plan, task);
  const ItemRun<T, C> run(args, item, scratch);
  run.LoadQueries();
  if (item.shared_slot < 0) {
    Reset(scratch.whole, run.rows(), run.width());
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
template <typename T, typename C>
void FoldShared(const AttentionArgs& args, const Item& item, float* shared,
                const Scratch& scratch) {
  if (item.shared_slot < 0) return;
  const ItemRun<T, C> run(args, item, scratch);
  Reset(scratch.whole, run.rows(), run.width());
  for (int64_t i = 0; i < item.end_partition - item.begin_partition; ++i) {
    run.FoldInto(SharedState(shared, item.shared_slot + i, run.width()), scratch.whole);
  }
  run.StoreRows(scratch.whole);
}

}  // namespace

int64_t AttentionWorkspaceBytes(const AttentionShape& shape, int threads) {
  if (shape.kv_heads <= 0 || shape.heads < shape.kv_heads) return 0;
  return Layout::Of(shape, threads).total_bytes;
}

void Attention(const AttentionArgs& args, ThreadPool& pool) {
  const AttentionShape shape = {
      .tokens = args.q.shape[0],
      .sequences = args.context_lengths.shape[0],
      .heads = args.q.shape[1],
      .kv_heads = args.cache.keys.shape[1],
      .head_dim = args.q.shape[2],
      .max_context_tokens = args.block_tables.shape[1] * args.cache.keys.shape[2],
      .activation_dtype = args.q.dtype};
  const Layout layout = Layout::Of(shape, pool.threads());
  std::byte* base = args.workspace.data;
  auto* shared = reinterpret_cast<float*>(base + layout.shared_offset);
  Plan plan;
  plan.items = reinterpret_cast<Item*>(base);
  ListItems(args, Cut::Of(shape.heads, shape.kv_heads), plan);
  ShareItems(pool.threads(), layout.max_shared, plan);
  const auto scratch_of = [&](int member) {
    auto* scratch = base + layout.scratch_offset + member * layout.scratch_bytes;
    return Scratch::At(reinterpret_cast<float*>(scratch), PaddedWidth(shape.head_dim));
  };
  WithActivationType(args.q.dtype, [&](auto activation) {
    WithActivationType(args.cache.keys.dtype, [&](auto cached) {
      using T = decltype(activation);
      using C = decltype(cached);
      pool.ParallelFor(plan.task_count, [&](int64_t task, int member) {
        RunTask<T, C>(args, plan, task, shared, scratch_of(member));
      });
      if (plan.task_count == plan.item_count) return;
      pool.ParallelFor(plan.item_count, [&](int64_t i, int member) {
        FoldShared<T, C>(args, plan.items[i], shared, scratch_of(member));
      });
    });
  });
}

}  // namespace tessera::kernels::TESSERA_SIMD_PATH
