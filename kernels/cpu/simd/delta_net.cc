// What layers with a state of each sequence compute: the convolution, and the gated delta rule.
//
// Columns of a head's state do not know each other, so rows of a sequence go through a block of
// columns before the next block. One pass over the block changes it by a row and reads it for the
// next one. What rows multiply with is computed once for all blocks.
#include "kernels/cpu/simd/row_tasks.h"
#include "kernels/cpu/simd/simd_kernels.h"
#include "kernels/cpu/simd/vector.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {
namespace {

struct SeatRows {
  int64_t seat, first, end;
  int64_t kept;  // end of those that leave something
  bool from_zeros;
};

// The rows of sequence `s`; none where it has no seat.
SeatRows RowsOf(const SeatArgs& args, int64_t s) {
  const int32_t* starts = args.query_starts.As<int32_t>();
  const int64_t seat = args.seats.As<int32_t>()[s], first = starts[s];
  const int64_t end = seat < 0 ? first : starts[s + 1];
  const int64_t drafts = seat < 0 || args.draft_rows.empty() ? 0 : args.draft_rows.As<int32_t>()[s];
  return {seat, first, end, end - drafts, args.context_lengths.As<int32_t>()[s] == end - first};
}

inline Vec Silu(Vec x) { return Div(x, Add(Set(1.0f), Exp(Sub(Zero(), x)))); }

// `count` channels from `channel` on, which are one vector, of all rows.
void ConvChannels(const CausalConvArgs& args, const SeatRows& rows, int64_t channel,
                  int64_t count) {
  const int64_t channels = args.rows.shape[1], taps = args.weights.shape[1];
  alignas(64) float columns[kMaxConvTaps][kLanes] = {};
  for (int64_t lane = 0; lane < count; ++lane) {
    const float* weights = args.weights.Row<const float>(channel + lane);
    for (int64_t t = 0; t < taps; ++t) columns[t][lane] = weights[t];
  }
  Vec weights[kMaxConvTaps], inputs[kMaxConvTaps];
  float* state = args.states.Row<float>(rows.seat) + channel;
  for (int64_t t = 0; t < taps; ++t) {
    weights[t] = Load(columns[t]);
    const bool known = t > 0 && !rows.from_zeros;
    inputs[t] = known ? LoadUpTo(state + (t - 1) * channels, count) : Zero();
  }
  for (int64_t row = rows.first; row < rows.end; ++row) {
    float* place = args.rows.Row<float>(row) + channel;
    for (int64_t t = 0; t + 1 < taps; ++t) inputs[t] = inputs[t + 1];
    inputs[taps - 1] = LoadUpTo(place, count);
    Vec sum = Mul(inputs[0], weights[0]);
    for (int64_t t = 1; t < taps; ++t) sum = Fma(inputs[t], weights[t], sum);
    StoreUpTo(place, Silu(sum), count);
    if (row + 1 != rows.kept) continue;
    for (int64_t t = 1; t < taps; ++t) StoreUpTo(state + (t - 1) * channels, inputs[t], count);
  }
}

// What a row of a value head multiplies with.
struct DeltaRow {
  const float *q, *k;      // not yet scaled
  float q_scale, k_scale;  // to their lengths
  float qk;                // product of both, scaled
  float decay, beta;
  float* values;
};

float Product(const float* a, const float* b, int64_t count) {
  Vec sum = Zero();
  ForVectors(count,
             [&](int64_t i, int64_t n) { sum = Fma(LoadUpTo(a + i, n), LoadUpTo(b + i, n), sum); });
  return ReduceAdd(sum);
}

DeltaRow RowOf(const GatedDeltaArgs& args, int64_t row, int64_t head) {
  const int64_t value_heads = args.values.shape[1], key_dim = args.keys.shape[2];
  const int64_t key_head = head / (value_heads / args.keys.shape[1]);
  DeltaRow made;
  made.q = args.queries.Row<const float>(row) + key_head * key_dim;
  made.k = args.keys.Row<const float>(row) + key_head * key_dim;
  const auto scale_of = [&](const float* head_of) {
    return 1.0f / __builtin_sqrtf(Product(head_of, head_of, key_dim) + 1e-6f);
  };
  made.q_scale = scale_of(made.q) / __builtin_sqrtf(static_cast<float>(key_dim));
  made.k_scale = scale_of(made.k);
  made.qk = Product(made.q, made.k, key_dim) * made.q_scale * made.k_scale;
  const float* gates = args.gates.Row<const float>(row);
  const float step = gates[value_heads + head] + args.decay_bias.As<float>()[head];
  const float softplus = step > 20.0f ? step : __builtin_log1pf(__builtin_expf(step));
  made.decay = __builtin_expf(-__builtin_expf(args.decay_log.As<float>()[head]) * softplus);
  made.beta = 1.0f / (1.0f + __builtin_expf(-gates[head]));
  made.values = args.values.Row<float>(row) + head * args.values.shape[2];
  return made;
}

// What rows read of a block of columns: k S and q S, not yet scaled.
template <int kVectors>
struct Reads {
  Vec k[kVectors], q[kVectors];
};

// kVectors vectors of columns, of which `count` are there, in the state of one head.
template <int kVectors>
struct Columns {
  float* state;
  int64_t key_dim, stride, count;

  int64_t Width() const { return kVectors > 1 ? int64_t{kLanes} : count; }

  // What a row reads; from zeros, it makes the block zeros.
  Reads<kVectors> Read(const DeltaRow& row, bool from_zeros) const {
    return Pass(&row, from_zeros, [&](int, int64_t, const float* at) {
      return from_zeros ? Zero() : LoadUpTo(at, Width());
    });
  }

  // Changes the block by a row, and reads for the next one, if there is one.
  Reads<kVectors> Change(const DeltaRow& row, const Vec (&changes)[kVectors],
                         const DeltaRow* next) const {
    const Vec decay = Set(row.decay);
    return Pass(next, true, [&](int v, int64_t i, const float* at) {
      return Fma(Set(row.k[i]), changes[v], Mul(LoadUpTo(at, Width()), decay));
    });
  }

  // The same block of a state that is `copy`, where it stands without gaps.
  Columns At(float* copy) const { return {copy, key_dim, kVectors * kLanes, count}; }

  // The block to `other`, of the same shape without gaps, or from there.
  void Save(float* other) const {
    ForParts([&](float* at, int64_t place) {
      StoreUpTo(other + place, LoadUpTo(at, Width()), Width());
    });
  }
  void Restore(const float* other) const {
    ForParts([&](float* at, int64_t place) {
      StoreUpTo(at, LoadUpTo(other + place, Width()), Width());
    });
  }

 private:
  // change(v, key, S) is what stands in the state from now on.
  template <typename Fn>
  [[gnu::always_inline]] Reads<kVectors> Pass(const DeltaRow* reader, bool stores,
                                              const Fn& change) const {
    Reads<kVectors> reads;
    for (int v = 0; v < kVectors; ++v) reads.k[v] = reads.q[v] = Zero();
    if (reader == nullptr) {
      for (int64_t i = 0; i < key_dim; ++i) {
        float* at = state + i * stride;
        for (int v = 0; v < kVectors; ++v) {
          StoreUpTo(at + v * kLanes, change(v, i, at + v * kLanes), Width());
        }
      }
      return reads;
    }
    const float *next_k = reader->k, *next_q = reader->q;
    for (int64_t i = 0; i < key_dim; ++i) {
      float* at = state + i * stride;
      const Vec k = Set(next_k[i]), q = Set(next_q[i]);
      for (int v = 0; v < kVectors; ++v) {
        const Vec s = change(v, i, at + v * kLanes);
        if (stores) StoreUpTo(at + v * kLanes, s, Width());
        reads.k[v] = Fma(s, k, reads.k[v]);
        reads.q[v] = Fma(s, q, reads.q[v]);
      }
    }
    return reads;
  }

  template <typename Part>
  void ForParts(const Part& part) const {
    for (int64_t i = 0; i < key_dim; ++i) {
      for (int v = 0; v < kVectors; ++v) {
        part(state + i * stride + v * kLanes, (i * kVectors + v) * kLanes);
      }
    }
  }
};

// Rows that follow one another, at least one.
struct DeltaRows {
  const DeltaRow* rows;
  int64_t count;
  bool from_zeros;
};

// Takes them through the block that begins at column `column`.
template <int kVectors>
void DeltaColumns(const Columns<kVectors>& block, const DeltaRows& part, int64_t column) {
  Reads<kVectors> reads = block.Read(part.rows[0], part.from_zeros);
  for (int64_t r = 0; r < part.count; ++r) {
    const DeltaRow& row = part.rows[r];
    const Vec decay = Set(row.decay), beta = Set(row.beta), k_scale = Set(row.k_scale);
    Vec changes[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      float* place = row.values + column + v * kLanes;
      const Vec known = Mul(Mul(reads.k[v], k_scale), decay);
      const Vec delta = Mul(Sub(LoadUpTo(place, block.Width()), known), beta);
      const Vec kept = Mul(Mul(reads.q[v], Set(row.q_scale)), decay);
      StoreUpTo(place, Fma(delta, Set(row.qk), kept), block.Width());
      changes[v] = Mul(delta, k_scale);
    }
    reads = block.Change(row, changes, r + 1 < part.count ? &row + 1 : nullptr);
  }
}

// Calls fn(block, its first column) for all columns of a head.
template <int kVectors, typename Fn>
void ForColumns(const GatedDeltaArgs& args, int64_t seat, int64_t head, const Fn& fn) {
  const int64_t key_dim = args.states.shape[2], value_dim = args.states.shape[3];
  float* state = args.states.Row<float>(seat) + head * key_dim * value_dim;
  int64_t column = 0;
  for (; column + kVectors * kLanes <= value_dim; column += kVectors * kLanes) {
    fn(Columns<kVectors>{state + column, key_dim, value_dim, kVectors * kLanes}, column);
  }
  for (; column < value_dim; column += kLanes) {
    const int64_t left = value_dim - column;
    fn(Columns<1>{state + column, key_dim, value_dim, left < kLanes ? left : int64_t{kLanes}},
       column);
  }
}

constexpr int64_t kRowsAtOnce = 64;
// From so many rows on a block is copied to where its rows follow one another: columns of a state
// lie a power of two apart, which leaves them an eighth of the first cache's places.
constexpr int64_t kMinCopiedRows = 4;
constexpr int kWideVectors = 4, kCopiedVectors = 16 / kLanes;

// The rows of a head from `begin` on, as many as there is room for.
DeltaRows RowsFrom(const GatedDeltaArgs& args, int64_t begin, int64_t end, int64_t head,
                   bool from_zeros, DeltaRow (&made)[kRowsAtOnce]) {
  const int64_t count = end - begin < kRowsAtOnce ? end - begin : kRowsAtOnce;
  for (int64_t r = 0; r < count; ++r) made[r] = RowOf(args, begin + r, head);
  return {made, count, from_zeros};
}

// Rows that leave something.
void KeptRows(const GatedDeltaArgs& args, int64_t seat, int64_t head, const DeltaRows& part) {
  if (part.count < kMinCopiedRows || args.states.shape[2] > kMaxDraftHeadDim) {
    ForColumns<kWideVectors>(args, seat, head, [&](const auto& block, int64_t column) {
      DeltaColumns(block, part, column);
    });
    return;
  }
  ForColumns<kCopiedVectors>(args, seat, head, [&](const auto& block, int64_t column) {
    alignas(64) float copy[kMaxDraftHeadDim * kCopiedVectors * kLanes];
    block.Save(copy);
    DeltaColumns(block.At(copy), part, column);
    block.Restore(copy);
  });
}

void DeltaHead(const GatedDeltaArgs& args, const SeatRows& rows, int64_t head) {
  DeltaRow made[kRowsAtOnce];
  for (int64_t begin = rows.first; begin < rows.kept; begin += kRowsAtOnce) {
    const bool from_zeros = rows.from_zeros && begin == rows.first;
    KeptRows(args, rows.seat, head, RowsFrom(args, begin, rows.kept, head, from_zeros, made));
  }
  if (rows.kept == rows.end) return;
  ForColumns<kCopiedVectors>(args, rows.seat, head, [&](const auto& block, int64_t column) {
    alignas(64) float copy[kMaxDraftHeadDim * kCopiedVectors * kLanes];
    block.Save(copy);
    for (int64_t begin = rows.kept; begin < rows.end; begin += kRowsAtOnce) {
      DeltaColumns(block.At(copy), RowsFrom(args, begin, rows.end, head, false, made), column);
    }
  });
}

}  // namespace

void CausalConv(const CausalConvArgs& args, ThreadPool& pool) {
  constexpr int64_t kVectorsPerTask = 16;
  const int64_t channels = args.rows.shape[1], width = kVectorsPerTask * kLanes;
  const int64_t parts = (channels + width - 1) / width;
  pool.ParallelFor(args.at.seats.rows() * parts, [&](int64_t task, int) {
    const SeatRows rows = RowsOf(args.at, task / parts);
    if (rows.first == rows.end) return;
    const int64_t first = task % parts * width;
    const int64_t end = first + width < channels ? first + width : channels;
    for (int64_t c = first; c < end; c += kLanes) {
      ConvChannels(args, rows, c, end - c < kLanes ? end - c : int64_t{kLanes});
    }
  });
}

void GatedDelta(const GatedDeltaArgs& args, ThreadPool& pool) {
  const int64_t heads = args.values.shape[1];
  pool.ParallelFor(args.at.seats.rows() * heads, [&](int64_t task, int) {
    const SeatRows rows = RowsOf(args.at, task / heads);
    if (rows.first < rows.end) DeltaHead(args, rows, task % heads);
  });
}

}  // namespace tessera::kernels::TESSERA_SIMD_PATH
