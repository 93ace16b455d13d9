// Attention over a bf16 cache with AVX512_BF16: queries and softmax weights are rounded to bf16 and
// multiplied in pairs (vdpbf16ps: even and odd product added to an f32 sum; subnormals count as
// zero), twice as many a cycle as f32. Compiled with -mavx512{f,bw,dq,vl,bf16}.
//
// A tile's keys are turned into [pair of dimensions][key], its values into [pair of keys]
// [dimension], so that no sum runs across a register. The lanes of a pair of keys lie as
// interleaving within 128-bit lanes leaves them; Finish puts a row's sums in order.
#include "kernels/cpu/avx512_transpose.h"
#include "kernels/cpu/simd/attention_run.h"
#include "kernels/cpu/simd/dot_paths.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {
namespace {

constexpr int64_t kBlockElements = 32;  // bf16 in a register
constexpr int kBlockRows = 4;           // rows of accumulators, each of up to 4 registers
constexpr int kVectors = 4;

// Rows of the tile to come, asked for one at a time while this one is multiplied. Null: none.
struct RowsAhead {
  const BFloat16* const* rows = nullptr;
  int64_t next = 0;
  int64_t row_bytes = 0;

  void AskForOne() {
    if (rows == nullptr || next == kTileKeys) return;
    const char* row = reinterpret_cast<const char*>(rows[next++]);
    for (int64_t i = 0; i < row_bytes; i += 64) _mm_prefetch(row + i, _MM_HINT_T1);
  }
};

// out[r][v * 16 + lane] = start + sum over i of left[r][i] . right[i][v * 16 + lane], pairs of bf16
// in words of 4 bytes; start(r, v) is what stands before the first product.
template <int kRows, int kCount, typename Start, typename End>
[[gnu::always_inline]] inline void MultiplyPairs(const uint32_t* left, int64_t left_stride,
                                                 const uint32_t* right, int64_t right_stride,
                                                 int64_t steps, RowsAhead& ahead,
                                                 const Start& start, const End& end) {
  Vec acc[kRows][kCount];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) acc[r][v] = start(r, v);
  }
  for (int64_t i = 0; i < steps; ++i) {
    ahead.AskForOne();
    __m512i x[kCount];
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v)
      x[v] = _mm512_load_si512(right + i * right_stride + v * kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m512i y = _mm512_set1_epi32(static_cast<int>(left[r * left_stride + i]));
#pragma GCC unroll 4
      for (int v = 0; v < kCount; ++v) {
        acc[r][v] = _mm512_dpbf16_ps(acc[r][v], reinterpret_cast<__m512bh>(x[v]),
                                     reinterpret_cast<__m512bh>(y));
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) end(r, v, acc[r][v]);
  }
}

// 2^x for x <= 0, relative error below 5e-5, which rounding to bf16 hides; NaN stays NaN. Taylor
// polynomial of degree 4 on |r| <= 1/2.
inline Vec PowerOfTwo(Vec x) {
  const Vec within = Max(Set(-150.0f), x);  // this order keeps NaN
  const Vec n = Round(within);
  const Vec r = Sub(within, n);
  Vec p = Set(9.6181291e-3f);
  p = Fma(p, r, Set(5.5504109e-2f));
  p = Fma(p, r, Set(0.24022651f));
  p = Fma(p, r, Set(0.69314718f));
  p = Fma(p, r, Set(1.0f));
  return Scale2(p, n);
}

// Weights of one row of scores as pairs of bf16, 0 where seen(i) leaves a lane of register i out;
// moves the running maximum and total; returns what the sums so far must be multiplied with.
template <typename Seen>
[[gnu::always_inline]] inline float SoftmaxOf(const float* scores, const Seen& seen,
                                              uint32_t* weights, float& maximum, float& total) {
  constexpr int kParts = kTileKeys / kLanes;
  const Vec none = Set(-__builtin_inff());
  Vec score[kParts];
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) score[i] = Select(seen(i), Load(scores + i * kLanes), none);
  const float tile_largest = ReduceMax(Max(Max(score[0], score[1]), Max(score[2], score[3])));
  const float next = tile_largest > maximum ? tile_largest : maximum;
  // Where nothing was seen yet every weight is 0, whatever is subtracted.
  const Vec base = Set(next == -__builtin_inff() ? 0.0f : next);
  Vec weight[kParts];
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) {
    const Vec power = PowerOfTwo(Mul(Sub(score[i], base), Set(1.44269504088896341f)));
    weight[i] = Select(seen(i), power, Zero());
  }
#pragma GCC unroll 4
  for (int i = 0; i < kParts; i += 2) {
    const __m512bh pairs = _mm512_cvtne2ps_pbh(weight[i + 1], weight[i]);
    _mm512_store_si512(weights + i * kLanes / 2, reinterpret_cast<__m512i>(pairs));
  }
  const Vec sum = Add(Add(weight[0], weight[1]), Add(weight[2], weight[3]));
  const float correction = next == maximum ? 1.0f : ExpOne(maximum - next);
  total = __builtin_fmaf(total, correction, ReduceAdd(sum));
  maximum = next;
  return correction;
}

// A Math of attention_run.h over pairs of bf16.
class DotMath {
 public:
  using Cache = BFloat16;
  static constexpr bool kLooksAhead = true;
  static constexpr int64_t kRowsTogether = kBlockRows;

  static constexpr int64_t PaddedWidth(int64_t head_dim) {
    return RoundUp(head_dim, kBlockElements);
  }
  static int64_t Floats(int64_t width) {
    return kMaxQueryRows * (width / 2 + kTileKeys / 2) + kTileKeys * width;
  }

  DotMath(float* scratch, int64_t head_dim)
      : head_dim_(head_dim),
        width_(PaddedWidth(head_dim)),
        query_words_(width_ / 2),
        q_(reinterpret_cast<uint32_t*>(scratch)),
        weights_(q_ + kMaxQueryRows * query_words_),
        keys_(weights_ + kMaxQueryRows * kTileKeys / 2),
        values_(keys_ + kTileKeys * query_words_) {
    ahead_.row_bytes = head_dim * static_cast<int64_t>(sizeof(BFloat16));
  }

  template <typename T>
  void PutQuery(int64_t r, const T* query) {
    auto* out = reinterpret_cast<BFloat16*>(q_ + r * query_words_);
    for (int64_t d = 0; d < width_; d += kLanes) {
      Store(out + d, d < head_dim_ ? LoadUpTo(query + d, Smaller(kLanes, head_dim_ - d)) : Zero());
    }
  }

  void LookAhead(const BFloat16* const* rows) {
    ahead_.rows = rows;
    ahead_.next = 0;
  }

  void PutKeys(const BFloat16* const* keys, int64_t count) {
    for (int64_t k = 0; k < count; k += kLanes) {
      for (int64_t d = 0; d < width_; d += kBlockElements) {
        __m512i x[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) x[i] = LoadBlock(keys[k + i], d);
        cpu::Transpose(x);
        uint32_t* out = keys_ + d / 2 * kTileKeys + k;
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) _mm512_store_si512(out + i * kTileKeys, x[i]);
      }
    }
  }

  void PutValues(const BFloat16* const* values, int64_t count) {
    for (int64_t k = 0; k < count; k += 2) {
      for (int64_t d = 0; d < width_; d += kBlockElements) {
        const __m512i even = LoadBlock(values[k], d), odd = LoadBlock(values[k + 1], d);
        uint32_t* out = values_ + k / 2 * width_ + d;
        _mm512_store_si512(out, _mm512_unpacklo_epi16(even, odd));
        _mm512_store_si512(out + kLanes, _mm512_unpackhi_epi16(even, odd));
      }
    }
  }

  void Scores(int64_t first, int64_t rows, int64_t count, float scale, float* scores) {
    const uint32_t* q = q_ + first * query_words_;
    if (rows == kBlockRows) return ScoreRows<kBlockRows>(q, count, scale, scores);
    for (int64_t r = 0; r < rows; ++r) {
      ScoreRows<1>(q + r * query_words_, count, scale, scores + r * kTileKeys);
    }
  }

  // The weights go to weights_; the total is of what they were before rounding.
  float Softmax(int64_t row, const float* scores, int64_t begin, int64_t end, float& maximum,
                float& total) {
    uint32_t* weights = weights_ + row * kTileKeys / 2;
    // No lane is left out of most tiles. The bits are the same.
    if (begin <= 0 && end >= kTileKeys) {
      return SoftmaxOf(
          scores, [](int) { return FirstLanes(kLanes); }, weights, maximum, total);
    }
    const auto seen = [=](int i) { return LanesBetween(begin - i * kLanes, end - i * kLanes); };
    return SoftmaxOf(scores, seen, weights, maximum, total);
  }

  void Weigh(int64_t rows, int64_t count, const float*, const float* corrections, float* sums) {
    int64_t r = 0;
    for (; r + kBlockRows <= rows; r += kBlockRows)
      WeighRows<kBlockRows>(r, count, corrections, sums);
    for (; r < rows; ++r) WeighRows<1>(r, count, corrections, sums);
  }

  void Finish(float* row) const {
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    for (int64_t d = 0; d < width_; d += kBlockElements) {
      const Vec low = Load(row + d), high = Load(row + d + kLanes);
      Store(row + d, _mm512_permutex2var_ps(low, first, high));
      Store(row + d + kLanes, _mm512_permutex2var_ps(low, second, high));
    }
  }

 private:
  // Dimensions [d, d + 32) of a key or value, zeros behind the last.
  __m512i LoadBlock(const BFloat16* row, int64_t d) const {
    const int64_t left = head_dim_ - d;
    if (left >= kBlockElements) return _mm512_loadu_si512(row + d);
    return _mm512_maskz_loadu_epi16((__mmask32{1} << left) - 1, row + d);
  }

  template <int kRows>
  void ScoreRows(const uint32_t* q, int64_t count, float scale, float* scores) {
    const Vec factor = Set(scale);
    const auto zero = [](int, int) { return Zero(); };
    const auto store_from = [&](int64_t k) {
      return [=](int r, int v, Vec sum) {
        Store(scores + r * kTileKeys + k + v * kLanes, Mul(sum, factor));
      };
    };
    const int64_t words = CeilDivide(head_dim_, 2);
    if (count > kTileKeys - kLanes) {
      MultiplyPairs<kRows, kVectors>(q, query_words_, keys_, kTileKeys, words, ahead_, zero,
                                     store_from(0));
      return;
    }
    for (int64_t k = 0; k < count; k += kLanes) {
      MultiplyPairs<kRows, 1>(q, query_words_, keys_ + k, kTileKeys, words, ahead_, zero,
                              store_from(k));
    }
  }

  template <int kRows, int kCount>
  void WeighColumns(int64_t row, int64_t count, int64_t d, const float* corrections, float* sums) {
    float* base = sums + row * width_ + d;
    MultiplyPairs<kRows, kCount>(
        weights_ + row * kTileKeys / 2, kTileKeys / 2, values_ + d, width_, CeilDivide(count, 2),
        ahead_,
        [&](int r, int v) {
          return Mul(Load(base + r * width_ + v * kLanes), Set(corrections[row + r]));
        },
        [&](int r, int v, Vec sum) { Store(base + r * width_ + v * kLanes, sum); });
  }

  template <int kRows>
  void WeighRows(int64_t row, int64_t count, const float* corrections, float* sums) {
    int64_t d = 0;
    for (; d + kVectors * kLanes <= width_; d += kVectors * kLanes) {
      WeighColumns<kRows, kVectors>(row, count, d, corrections, sums);
    }
    for (; d < width_; d += kLanes) WeighColumns<kRows, 1>(row, count, d, corrections, sums);
  }

  const int64_t head_dim_, width_, query_words_;
  uint32_t* const q_;        // [rows][query_words]
  uint32_t* const weights_;  // [rows][kTileKeys / 2]
  uint32_t* const keys_;     // [query_words][kTileKeys]
  uint32_t* const values_;   // [kTileKeys / 2][width]
  RowsAhead ahead_;
};

}  // namespace

int64_t DotAttentionWorkspaceBytes(const AttentionShape& shape, int threads) {
  if (shape.kv_heads <= 0 || shape.heads < shape.kv_heads) return 0;
  return Layout::Of<DotMath>(shape, threads).total_bytes;
}

void DotAttention(const AttentionArgs& args, ThreadPool& pool) {
  WithActivationType(args.q.dtype, [&](auto activation) {
    AttendWith<decltype(activation), DotMath>(args, pool);
  });
}

}  // namespace tessera::kernels::TESSERA_SIMD_PATH
