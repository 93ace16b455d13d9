// Attention over a bf16 cache with AVX512_BF16: queries and softmax weights are rounded to bf16 and
// multiplied in pairs (vdpbf16ps: even and odd product added to an f32 sum; subnormals count as
// zero), twice as many a cycle as f32. Compiled with -mavx512{f,bw,dq,vl,bf16}.
//
// Query rows are worked on eight at a time, two lanes to a row: one sums over the even words of
// four bytes, one over the odd ones. So a key's words are broadcast, two at a time, from where the
// cache has them, and no key is turned. Values are turned into [pair of keys][dimension], whose
// lanes lie as interleaving within 128-bit lanes leaves them; Finish puts a row's sums in order.
#include "kernels/cpu/simd/attention_run.h"
#include "kernels/cpu/simd/dot_paths.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {
namespace {

constexpr int64_t kBlockElements = 32;  // bf16 in a register
constexpr int kGroup = 8;               // rows that share registers
constexpr int kWordsTogether = 2;       // of a row or key, in one product
constexpr int kBlockRows = 4;           // rows of accumulators, each of up to 4 registers
constexpr int kVectors = 4;

// Asks for 64 bytes at `place` of the tile to come; more than once on the way through a tile, as
// the processor drops requests that it has no room for. Always inlined: g++ 12 takes a function
// that only prefetches for one without effects, and drops calls of it.
[[gnu::always_inline]] inline void AskFor(const BFloat16* place) {
  _mm_prefetch(reinterpret_cast<const char*>(place), _MM_HINT_T1);
}

// Sums of two keys, in lanes [row][even or odd words], to scores, in lanes [two rows][key][row].
inline Vec AddWords(Vec first_key, Vec second_key) {
  return Add(_mm512_shuffle_ps(first_key, second_key, 0x88),
             _mm512_shuffle_ps(first_key, second_key, 0xdd));
}

// Scores of kGroups groups of rows and kKeys keys, times `scale`: [g][pair of keys][lane].
// q: [g][two words][lane]; words: a multiple of kWordsTogether; ahead: keys to come.
template <int kGroups, int kKeys>
[[gnu::always_inline]] inline void ScoreBlock(const uint32_t* q, int64_t words,
                                              const BFloat16* const volatile* keys,
                                              const BFloat16* const* ahead, Vec scale,
                                              float* scores) {
  constexpr int kStepWords = 2 * kWordsTogether;
  constexpr int kAskedPerStep = kKeys * kStepWords * 4 / 64;  // the keys' lines over all steps
  Vec acc[kKeys][kGroups];
#pragma GCC unroll 16
  for (int k = 0; k < kKeys; ++k) {
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) acc[k][g] = Zero();
  }
  const auto multiply = [&](int k, const BFloat16* two_words, int64_t word) {
    int64_t bits;
    __builtin_memcpy(&bits, two_words, sizeof(bits));
    const auto key = reinterpret_cast<__m512bh>(_mm512_set1_epi64(bits));
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) {
      const __m512i queries = _mm512_load_si512(q + (g * words + word) * kGroup);
      acc[k][g] = _mm512_dpbf16_ps(acc[k][g], reinterpret_cast<__m512bh>(queries), key);
    }
  };
  int64_t i = 0, step = 0;
  for (; i + kStepWords <= words; i += kStepWords, ++step) {
#pragma GCC unroll 4
    for (int k = 0; k < kAskedPerStep; ++k) {
      AskFor(ahead[step * kAskedPerStep % kKeys + k] + step * kAskedPerStep / kKeys * 32);
    }
#pragma GCC unroll 16
    for (int k = 0; k < kKeys; ++k) {
      const BFloat16* key = keys[k] + 2 * i;  // read again: there are not registers for so many
      multiply(k, key, i);
      multiply(k, key + 2 * kWordsTogether, i + kWordsTogether);
    }
  }
  for (; i < words; i += kWordsTogether) {
#pragma GCC unroll 16
    for (int k = 0; k < kKeys; ++k) multiply(k, keys[k] + 2 * i, i);
  }
#pragma GCC unroll 8
  for (int k = 0; k < kKeys; k += 2) {
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) {
      Store(scores + (g * kTileKeys + k) * kGroup, Mul(AddWords(acc[k][g], acc[k + 1][g]), scale));
    }
  }
}

// out[r][v * 16 + lane] = start + sum over i of left[r][i] . right[i][v * 16 + lane], pairs of bf16
// in words of 4 bytes, left's rows side by side (left[i * kGroup + r]); right(i, x) loads
// right[i][...], start(r, v) is what stands before the first product.
template <int kRows, int kCount, typename Right, typename Start, typename End>
[[gnu::always_inline]] inline void MultiplyPairs(const uint32_t* left, const Right& right,
                                                 int64_t steps, const Start& start,
                                                 const End& end) {
  Vec acc[kRows][kCount];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) acc[r][v] = start(r, v);
  }
  for (int64_t i = 0; i < steps; ++i) {
    __m512i x[kCount];
    right(i, x);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512i y = _mm512_set1_epi32(static_cast<int>(left[i * kGroup + r]));
#pragma GCC unroll 4
      for (int v = 0; v < kCount; ++v) {
        acc[r][v] = _mm512_dpbf16_ps(acc[r][v], reinterpret_cast<__m512bh>(x[v]),
                                     reinterpret_cast<__m512bh>(y));
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) end(r, v, acc[r][v]);
  }
}

// 2^x for x <= 0, relative error below 1e-4, which rounding to bf16 hides; below 2^-126 that, NaN
// stays NaN. Adding 1.5 * 2^23 leaves the integer nearest to x in a number's low bits, from where
// it is shifted to the exponent: cheaper than to round and to scale. Least largest relative error
// of degree 3 on |r| <= 1/2.
inline Vec PowerOfTwo(Vec x) {
  const Vec within = Max(Set(-126.0f), x);  // this order keeps NaN
  const Vec n = Add(within, Set(12582912.0f));
  const Vec r = Sub(within, Sub(n, Set(12582912.0f)));
  Vec p = Set(5.51716512e-2f);
  p = Fma(p, r, Set(0.24261116f));
  p = Fma(p, r, Set(0.69326099f));
  p = Fma(p, r, Set(0.99992807f));
  const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(n), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), exponent));
}

// A register of scores or weights holds a group's rows for two keys: in each quarter two rows of
// the first key, then the same of the second. Twice puts a figure of each row beside both.
inline Vec Twice(__m256 rows) {
  const __m512i places = _mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3);
  return _mm512_castpd_ps(
      _mm512_permutexvar_pd(places, _mm512_castps_pd(_mm512_castps256_ps512(rows))));
}
inline __m256 Once(Vec both) {
  const __m512i places = _mm512_setr_epi64(0, 2, 4, 6, 0, 2, 4, 6);
  return _mm512_castps512_ps256(
      _mm512_castpd_ps(_mm512_permutexvar_pd(places, _mm512_castps_pd(both))));
}
inline Vec OtherKey(Vec both) { return _mm512_permute_ps(both, 0x4e); }

// Which keys of a tile a group's rows see: all, or for each row those of [begin, end).
struct SeenKeys {
  bool all = true;
  alignas(32) int32_t begin[kGroup], end[kGroup];

  VecMask OfPair(int pair) const {
    const auto twice = [](const int32_t* rows) {
      return _mm512_castps_si512(Twice(_mm256_load_ps(reinterpret_cast<const float*>(rows))));
    };
    const __m512i second = _mm512_set4_epi32(1, 1, 0, 0);
    const __m512i key = _mm512_add_epi32(_mm512_set1_epi32(2 * pair), second);
    return _mm512_cmpge_epi32_mask(key, twice(begin)) & _mm512_cmplt_epi32_mask(key, twice(end));
  }
};

// Weights of a group's scores as pairs of bf16 [pair of keys][row], 0 where a row does not see a
// key; moves the running maxima and totals (of the weights before rounding); corrections are what
// the sums so far must be multiplied with.
template <typename Seen>
[[gnu::always_inline]] inline void SoftmaxOf(const float* scores, const Seen& seen,
                                             uint32_t* weights, float* maxima, float* totals,
                                             float* corrections) {
  constexpr int kPairs = kTileKeys / 2, kQuarter = kPairs / 4;
  const Vec none = Set(-__builtin_inff());
  Vec largest[4] = {none, none, none, none};
#pragma GCC unroll 2
  for (int i = 0; i < kPairs; i += 4) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const Vec score = Load(scores + (i + j) * kLanes);
      largest[j] = Max(largest[j], Select(seen(i + j), score, none));
    }
  }
  const Vec of_tile = Max(Max(largest[0], largest[1]), Max(largest[2], largest[3]));
  const Vec before = Twice(_mm256_loadu_ps(maxima));
  const Vec next = Max(Max(of_tile, OtherKey(of_tile)), before);
  const Vec correction = Select(Equal(before, next), Set(1.0f), Exp(Sub(before, next)));
  _mm256_storeu_ps(maxima, Once(next));
  _mm256_storeu_ps(corrections, Once(correction));

  // Where nothing was seen yet every weight is 0, whatever is subtracted.
  const Vec log2e = Set(1.44269504088896341f);
  const Vec base = Mul(Select(Equal(next, none), Zero(), next), log2e);
  // Within 8 bytes, two rows of the first key and two of the second, to two pairs of keys.
  const __m512i together =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  Vec sum = Zero();
#pragma GCC unroll 4
  for (int i = 0; i < kQuarter; i += 2) {
    Vec weight[4][2];
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) {
      const int pair = part * kQuarter + i;
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) {
        const Vec score = Load(scores + (pair + j) * kLanes);
        const Vec power = PowerOfTwo(_mm512_fmsub_ps(score, log2e, base));
        weight[part][j] = Select(seen(pair + j), power, Zero());
      }
      const __m512bh rounded = _mm512_cvtne2ps_pbh(weight[part][1], weight[part][0]);
      _mm512_store_si512(weights + pair * kGroup,
                         _mm512_shuffle_epi8(reinterpret_cast<__m512i>(rounded), together));
    }
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) weight[part][0] = Add(weight[part][0], weight[part][1]);
    sum = Add(sum, Add(Add(weight[0][0], weight[1][0]), Add(weight[2][0], weight[3][0])));
  }
  const Vec total = Fma(Twice(_mm256_loadu_ps(totals)), correction, Add(sum, OtherKey(sum)));
  _mm256_storeu_ps(totals, Once(total));
}

// A Math of attention_run.h over pairs of bf16.
class DotMath {
 public:
  using Cache = BFloat16;
  static constexpr bool kLooksAhead = true;
  static constexpr int64_t kRowsTogether = 2 * kGroup;
  static constexpr int64_t kRowGroup = kGroup;

  static constexpr int64_t PaddedWidth(int64_t head_dim) {
    return RoundUp(head_dim, kBlockElements);
  }
  static int64_t Floats(int64_t width) {
    return kMaxQueryRows * (width / 2 + kTileKeys / 2) + kTileKeys * width;
  }

  DotMath(float* scratch, int64_t head_dim)
      : head_dim_(head_dim),
        width_(PaddedWidth(head_dim)),
        query_words_(RoundUp(CeilDivide(head_dim, 2), kWordsTogether)),
        q_(reinterpret_cast<uint32_t*>(scratch)),
        weights_(q_ + kMaxQueryRows * width_ / 2),
        key_copies_(weights_ + kMaxQueryRows * kTileKeys / 2),
        turned_(key_copies_ + kTileKeys * width_ / 2) {}

  template <typename T>
  void PutQuery(int64_t r, const T* query) {
    alignas(64) uint32_t pairs[kBlockElements / 2];
    auto* elements = reinterpret_cast<BFloat16*>(pairs);
    for (int64_t d = 0; d < head_dim_; d += kBlockElements) {
      for (int64_t i = 0; i < kBlockElements; i += kLanes) {
        const int64_t left = head_dim_ - d - i;
        Store(elements + i, left > 0 ? LoadUpTo(query + d + i, Smaller(kLanes, left)) : Zero());
      }
      for (int64_t i = 0; i < Smaller(kBlockElements / 2, query_words_ - d / 2); ++i) {
        *QueryWord(r, d / 2 + i) = pairs[i];
      }
    }
  }
  void PutNoQuery(int64_t r) {
    for (int64_t i = 0; i < query_words_; ++i) *QueryWord(r, i) = 0;
  }

  void LookAhead(const BFloat16* const* keys, const BFloat16* const* values) {
    keys_ahead_ = keys;
    values_ahead_ = values;
  }

  // Read in place, but where the last words of a key would reach into what stands behind it.
  void PutKeys(const BFloat16* const* keys, int64_t count) {
    keys_ = keys;
    if (head_dim_ % (2 * kWordsTogether) == 0) return;
    auto* copy = reinterpret_cast<BFloat16*>(key_copies_);
    for (int64_t k = 0; k < RoundUp(count, kKeysTogether); ++k, copy += width_) {
      for (int64_t d = 0; d < width_; d += kBlockElements) {
        _mm512_store_si512(copy + d, LoadBlock(keys[k], d));
      }
      copied_[k] = copy;
    }
    keys_ = copied_;
  }

  void PutValues(const BFloat16* const* values, int64_t) { values_ = values; }

  // scores: [group][pair of keys][lane].
  void Scores(int64_t first, int64_t rows, int64_t count, float scale, float* scores) {
    const uint32_t* q = q_ + first * query_words_;
    const Vec factor = Set(scale);
    const BFloat16* const* ahead = keys_ahead_;
    for (int64_t k = 0; k < count; k += kKeysTogether) {
      float* out = scores + k * kGroup;
      if (rows <= kGroup) {
        ScoreBlock<1, kKeysTogether>(q, query_words_, keys_ + k, ahead + k, factor, out);
        continue;
      }
      constexpr int kHalf = kKeysTogether / 2;
      ScoreBlock<2, kHalf>(q, query_words_, keys_ + k, ahead + k, factor, out);
      ScoreBlock<2, kHalf>(q, query_words_, keys_ + k + kHalf, ahead + k + kHalf, factor,
                           out + kHalf * kGroup);
    }
  }

  // The weights go to weights_.
  template <typename SeenOf>
  void Softmax(int64_t first, int64_t rows, float* scores, const SeenOf& seen_of,
               const RowState& state, float* corrections) {
    for (int64_t r = first; r < first + rows; r += kGroup, scores += kTileKeys * kGroup) {
      SeenKeys seen;
      for (int i = 0; i < kGroup; ++i) {
        const auto [begin, end] = seen_of(r + i);
        seen.all = seen.all && begin <= 0 && end >= kTileKeys;
        seen.begin[i] = static_cast<int32_t>(begin);
        seen.end[i] = static_cast<int32_t>(end);
      }
      uint32_t* weights = weights_ + r * kTileKeys / 2;
      // No lane is left out of most tiles. The bits are the same.
      if (seen.all) {
        SoftmaxOf(
            scores, [](int) { return FirstLanes(kLanes); }, weights, state.maxima + r,
            state.totals + r, corrections + r);
      } else {
        SoftmaxOf(
            scores, [&](int pair) { return seen.OfPair(pair); }, weights, state.maxima + r,
            state.totals + r, corrections + r);
      }
    }
  }

  void Weigh(int64_t rows, int64_t count, const float*, const float* corrections, float* sums) {
    const int64_t pairs = CeilDivide(count, 2);
    if (rows <= kRowsTogether) {  // turning values again is cheaper than keeping them
      int64_t r = 0;
      for (; r + kBlockRows <= rows; r += kBlockRows)
        WeighTurning<kBlockRows>(r, pairs, corrections, sums);
      for (; r < rows; ++r) WeighTurning<1>(r, pairs, corrections, sums);
      return;
    }
    TurnValues(pairs);
    int64_t r = 0;
    for (; r + kBlockRows <= rows; r += kBlockRows)
      WeighRows<kBlockRows>(r, pairs, corrections, sums);
    for (; r < rows; ++r) WeighRows<1>(r, pairs, corrections, sums);
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
  static constexpr int64_t kKeysTogether = 16;

  uint32_t* QueryWord(int64_t row, int64_t word) const {
    const int64_t first = row / kGroup * query_words_ + word / kWordsTogether * kWordsTogether;
    return q_ + first * kGroup + row % kGroup * kWordsTogether + word % kWordsTogether;
  }

  // Dimensions [d, d + 32) of a key or value, zeros behind the last.
  __m512i LoadBlock(const BFloat16* row, int64_t d) const {
    const int64_t left = head_dim_ - d;
    if (left >= kBlockElements) return _mm512_loadu_si512(row + d);
    return _mm512_maskz_loadu_epi16((__mmask32{1} << left) - 1, row + d);
  }

  // kWhole: [d, d + 32) are dimensions, and no loop needs to look.
  template <bool kWhole>
  [[gnu::always_inline]] void TurnBlock(const BFloat16* const* values, int64_t pair, int64_t d,
                                        __m512i* out) const {
    const auto load = [ this, d ](const BFloat16* row) __attribute__((always_inline)) {
      return kWhole ? _mm512_loadu_si512(row + d) : LoadBlock(row, d);
    };
    const __m512i even = load(values[2 * pair]), odd = load(values[2 * pair + 1]);
    out[0] = _mm512_unpacklo_epi16(even, odd);
    out[1] = _mm512_unpackhi_epi16(even, odd);
  }

  void TurnValues(int64_t pairs) {
    const BFloat16* const* values = values_;
    const int64_t width = width_;
    uint32_t* out = turned_;
    for (int64_t pair = 0; pair < pairs; ++pair) {
      for (int64_t d = 0; d < width; d += kBlockElements, out += kBlockElements) {
        __m512i x[2];
        TurnBlock<false>(values, pair, d, x);
        _mm512_store_si512(out, x[0]);
        _mm512_store_si512(out + kLanes, x[1]);
      }
    }
  }

  template <int kRows, int kCount, typename Right>
  [[gnu::always_inline]] void WeighColumns(int64_t row, int64_t pairs, int64_t d,
                                           const Right& right, const float* corrections,
                                           float* sums) {
    const int64_t width = width_;
    float* base = sums + row * width + d;
    const uint32_t* weights = weights_ + row / kGroup * kGroup * kTileKeys / 2 + row % kGroup;
    MultiplyPairs<kRows, kCount>(
        weights, right, pairs,
        [&](int r, int v) {
          return Mul(Load(base + r * width + v * kLanes), Set(corrections[row + r]));
        },
        [&](int r, int v, Vec sum) { Store(base + r * width + v * kLanes, sum); });
  }

  // From values as they stand.
  template <int kRows>
  void WeighTurning(int64_t row, int64_t pairs, const float* corrections, float* sums) {
    const BFloat16 *const *values = values_, *const * ahead[] = {keys_ahead_, values_ahead_};
    const auto ask = [&](int64_t i, int64_t d) __attribute__((always_inline)) {
      for (const auto* rows : ahead) {
        AskFor(rows[2 * i] + d);
        AskFor(rows[2 * i + 1] + d);
      }
    };
    int64_t d = 0;
    for (; d + kVectors * kLanes <= head_dim_; d += kVectors * kLanes) {
      const auto right = [ =, this ](int64_t i, __m512i * x) __attribute__((always_inline)) {
        ask(i, d);
        TurnBlock<true>(values, i, d, x);
        ask(i, d + kBlockElements);
        TurnBlock<true>(values, i, d + kBlockElements, x + 2);
      };
      WeighColumns<kRows, kVectors>(row, pairs, d, right, corrections, sums);
    }
    for (; d < width_; d += kBlockElements) {
      const auto right = [ =, this ](int64_t i, __m512i * x) __attribute__((always_inline)) {
        ask(i, d);
        TurnBlock<false>(values, i, d, x);
      };
      WeighColumns<kRows, 2>(row, pairs, d, right, corrections, sums);
    }
  }

  // From values that were turned.
  template <int kRows>
  void WeighRows(int64_t row, int64_t pairs, const float* corrections, float* sums) {
    const int64_t width = width_;
    const uint32_t* turned = turned_;
    int64_t d = 0;
    for (; d + kVectors * kLanes <= width; d += kVectors * kLanes) {
      const auto right = [=](int64_t i, __m512i* x) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          x[v] = _mm512_load_si512(turned + i * width + d + v * kLanes);
        }
      };
      WeighColumns<kRows, kVectors>(row, pairs, d, right, corrections, sums);
    }
    for (; d < width; d += kLanes) {
      const auto right = [=](int64_t i, __m512i* x) {
        x[0] = _mm512_load_si512(turned + i * width + d);
      };
      WeighColumns<kRows, 1>(row, pairs, d, right, corrections, sums);
    }
  }

  const int64_t head_dim_, width_, query_words_;
  uint32_t* const q_;           // [group][two words][row][word]
  uint32_t* const weights_;     // [group][kTileKeys / 2][row]
  uint32_t* const key_copies_;  // [kTileKeys][width / 2]
  uint32_t* const turned_;      // [kTileKeys / 2][width], of values
  const BFloat16* const* values_ = nullptr;
  const BFloat16* const* keys_ = nullptr;
  const BFloat16* copied_[kTileKeys];
  const BFloat16* const* keys_ahead_ = nullptr;  // of the tile to come, or of this one
  const BFloat16* const* values_ahead_ = nullptr;
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
