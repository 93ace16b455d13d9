// Rotary positions, the KV cache, and attention over it.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/reference/element.h"
#include "kernels/cpu/reference/reference_kernels.h"
#include "kernels/kv_rows.h"

namespace tessera::kernels::reference {
namespace {

// Where a token's key or value stands.
struct CachePlace {
  int64_t head;
  int64_t slot;
};

// Elements [first, first + count) of a key or value.
void ReadCached(const TensorView& cache, const CachePlace& place, int64_t first, int64_t count,
                int64_t head_dim, float* out) {
  const int64_t row = place.slot * cache.shape[3];
  if (!HasKvScales(cache.dtype)) return ReadPart(cache, place.head, row + first, count, out);
  const std::byte* const codes = cache.Row<std::byte>(place.head) + row;
  for (int64_t i = 0; i < count; ++i) {
    out[i] = KvRowValue(codes, first + i, head_dim, cache.dtype);
  }
}

double InverseFrequency(const RopeTableArgs& args, int64_t token, int64_t i) {
  const double as_given = args.inverse_frequencies.As<float>()[i];
  if (args.dynamic_factor == 0.0f) return as_given;
  const double length = args.lengths.As<int32_t>()[token];
  const double original = static_cast<double>(args.original_max_position);
  if (length <= original) return as_given;
  const double d = static_cast<double>(args.cos_sin.shape[1]);
  const double factor = args.dynamic_factor;
  const double theta =
      args.theta * std::pow(factor * length / original - (factor - 1), d / (d - 2));
  return static_cast<float>(1.0 / std::pow(theta, 2.0 * static_cast<double>(i) / d));
}

void RotateHead(const TensorView& x, int64_t token, int64_t head, const float* cos_sin,
                int64_t half) {
  const int64_t begin = head * x.shape[2];
  for (int64_t i = 0; i < half; ++i) {
    const double a = Get(x, token, begin + i), b = Get(x, token, begin + half + i);
    const double cosine = cos_sin[i], sine = cos_sin[half + i];
    Set(x, token, begin + i, a * cosine - b * sine);
    Set(x, token, begin + half + i, b * cosine + a * sine);
  }
}

// Keys of one query row: slot(position) for positions [begin, end).
struct Context {
  const int32_t* table;
  int64_t block_tokens;
  int64_t begin, end;

  int64_t Slot(int64_t position) const {
    return table[position / block_tokens] * block_tokens + position % block_tokens;
  }
};

// A token's key or value of a head into its slot.
void WriteHead(const TensorView& from, int64_t token, int64_t head, int64_t head_dim,
               const TensorView& cache, int64_t slot) {
  const int64_t row = slot * cache.shape[3], begin = head * head_dim;
  if (!HasKvScales(cache.dtype)) {
    for (int64_t d = 0; d < head_dim; ++d) Set(cache, head, row + d, Get(from, token, begin + d));
    return;
  }
  std::byte* const out = cache.Row<std::byte>(head) + row;
  switch (from.dtype) {
    case DType::kBF16:
      return WriteKvRow(from.Row<BFloat16>(token) + begin, head_dim, cache.dtype, out);
    case DType::kF16:
      return WriteKvRow(from.Row<Float16>(token) + begin, head_dim, cache.dtype, out);
    default: return WriteKvRow(from.Row<float>(token) + begin, head_dim, cache.dtype, out);
  }
}

// Scores of a query against the keys of [first, first + kAtOnce), those at `end` and behind it left
// out.
void Score(const AttentionArgs& args, int64_t row, int64_t head, int64_t kv_head,
           const Context& context, int64_t first, double* scores) {
  const int64_t head_dim = args.q.shape[2];
  float query[kPart], keys[kAtOnce][kPart];
  std::fill_n(scores, kAtOnce, 0.0);
  for (int64_t d = 0; d < head_dim; d += kPart) {
    const int64_t count = std::min(kPart, head_dim - d);
    ReadPart(args.q, row, head * head_dim + d, count, query);
    for (int64_t j = 0; j < kAtOnce; ++j) {
      if (first + j >= context.end) {
        std::fill_n(keys[j], count, 0.0f);
        continue;
      }
      const CachePlace key = {kv_head, context.Slot(first + j)};
      ReadCached(args.cache.keys, key, d, count, head_dim, keys[j]);
    }
    AddProducts(query, keys, count, scores);
  }
  const double cap = args.soft_cap;
  for (int64_t j = 0; j < kAtOnce; ++j) {
    const double score = scores[j] * args.scale;
    scores[j] = cap > 0 ? cap * std::tanh(score / cap) : score;
  }
}

// Two passes over the scores instead of a buffer for them.
void AttendRow(const AttentionArgs& args, int64_t row, int64_t head, const Context& context) {
  const int64_t head_dim = args.q.shape[2];
  const int64_t kv_head = head / (args.q.shape[1] / args.cache.keys.shape[0]);
  const auto for_scores = [&](const auto& take) {
    double scores[kAtOnce];
    for (int64_t first = context.begin; first < context.end; first += kAtOnce) {
      Score(args, row, head, kv_head, context, first, scores);
      const int64_t end = std::min(first + kAtOnce, context.end);
      for (int64_t p = first; p < end; ++p) take(p, scores[p - first]);
    }
  };
  const double sink = args.sinks.empty() ? -INFINITY : args.sinks.As<float>()[head];
  double largest = sink;
  for_scores([&](int64_t, double score) { largest = std::max(largest, score); });
  for (int64_t part = 0; part < head_dim; part += kPart) {
    double sums[kPart] = {}, total = args.sinks.empty() ? 0 : std::exp(sink - largest);
    const int64_t width = std::min(kPart, head_dim - part);
    for_scores([&](int64_t p, double score) {
      const double weight = std::exp(score - largest);
      total += weight;
      float values[kPart];
      ReadCached(args.cache.values, {kv_head, context.Slot(p)}, part, width, head_dim, values);
      for (int64_t d = 0; d < width; ++d) sums[d] += weight * values[d];
    });
    for (int64_t d = 0; d < width; ++d) {
      Set(args.out, row, head * head_dim + part + d, sums[d] / total);
    }
  }
}

}  // namespace

void RopeTable(const RopeTableArgs& args, ThreadPool& pool) {
  const int64_t half = args.cos_sin.shape[1] / 2;
  pool.ParallelFor(args.cos_sin.rows(), [&](int64_t token, int) {
    float* row = args.cos_sin.Row<float>(token);
    const int32_t position = args.positions.As<int32_t>()[token];
    for (int64_t i = 0; i < half; ++i) {
      if (position < 0) {
        row[i] = 1.0f;
        row[half + i] = 0.0f;
        continue;
      }
      // The angle is rounded to float as the models were trained: at position 100000 it matters.
      const float frequency = static_cast<float>(InverseFrequency(args, token, i));
      const double angle = static_cast<float>(position) * frequency;
      row[i] = static_cast<float>(std::cos(angle) * args.attention_factor);
      row[half + i] = static_cast<float>(std::sin(angle) * args.attention_factor);
    }
  });
}

void Rope(const RopeArgs& args, ThreadPool&) {
  const int64_t half = args.cos_sin.shape[1] / 2;
  for (int64_t token = 0; token < args.q.rows(); ++token) {
    const float* cos_sin = args.cos_sin.Row<float>(token);
    for (const TensorView* x : {&args.q, &args.k}) {
      for (int64_t head = 0; head < x->shape[1]; ++head) {
        RotateHead(*x, token, head, cos_sin, half);
      }
    }
  }
}

void KvWrite(const KvWriteArgs& args, ThreadPool&) {
  const int64_t kv_heads = args.k.shape[1], head_dim = args.k.shape[2];
  for (int64_t token = 0; token < args.k.rows(); ++token) {
    const int64_t slot = args.slots.As<int32_t>()[token];
    if (slot < 0) continue;
    for (int64_t head = 0; head < kv_heads; ++head) {
      WriteHead(args.k, token, head, head_dim, args.cache.keys, slot);
      WriteHead(args.v, token, head, head_dim, args.cache.values, slot);
    }
  }
}

int64_t AttentionWorkspaceBytes(const AttentionShape&, int) { return 0; }

void Attention(const AttentionArgs& args, ThreadPool&) {
  const int32_t* starts = args.query_starts.As<int32_t>();
  for (int64_t s = 0; s < args.context_lengths.rows(); ++s) {
    const int64_t rows = starts[s + 1] - starts[s];
    const int64_t first_position = args.context_lengths.As<int32_t>()[s] - rows;
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t end = first_position + i + 1;
      const int64_t last = end - 1;
      const int64_t begin = args.window == 0 ? 0
                            : args.chunked   ? last - last % args.window
                                             : std::max<int64_t>(0, end - args.window);
      const Context context = {.table = args.block_tables.Row<int32_t>(s),
                               .block_tokens = args.cache.keys.shape[2],
                               .begin = begin,
                               .end = end};
      for (int64_t head = 0; head < args.q.shape[1]; ++head) {
        AttendRow(args, starts[s] + i, head, context);
      }
    }
  }
}

}  // namespace tessera::kernels::reference
